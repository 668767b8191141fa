"""Arrays of single statements in a user's file: a direction, or two."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from generators.user_data import load
from theorems.core.claim import Verdict
from theorems.run.verify import verify_data


def test_two_directions_beside_the_keys_are_those_of_lemma_8(tmp_path: Path) -> None:
    """q1 and q2 select token 0, q2 by the larger margin; other units of the keys leave them as they are."""
    keys, scores = np.array([[[0.0, 0.0], [-1.0, 0.0], [-1.0, -8.0]]]), np.array([[1.0, 0.0, 0.5]])
    for unit in (1.0, 2.0**40):
        np.savez(tmp_path / "q.npz", keys=keys * unit, scores=scores, q1=[3.0, 4.0], q2=[1.0, 0.0])
        given = load(str(tmp_path / "q.npz"), 0)
        normal = given.case.normalised()
        assert (normal.arrays["q1"].tolist(), normal.arrays["q2"].tolist()) == ([3.0, 4.0], [1.0, 0.0])
        assert verify_data("lemma-8", given).counts == {Verdict.UPHELD: 1}
    np.savez(tmp_path / "q.npz", keys=keys, scores=scores, q1=[1.0, 0.0], q2=[3.0, 4.0])
    assert verify_data("lemma-8", load(str(tmp_path / "q.npz"), 0)).counts == {Verdict.NOT_APPLICABLE: 1}


def test_a_figure_that_shares_its_data_is_data_too() -> None:
    assert np.array_equal(load("figure-4b", 0).case.problem.keys, load("figure-4", 0).case.problem.keys)
