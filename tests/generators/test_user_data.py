"""Arrays that only some statements read from a user's file, such as directions and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.user_data import load
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from theorems.core.claim import Verdict
from theorems.run.verify import verify_data


def test_two_directions_in_a_file_are_read_for_lemma_8(tmp_path: Path) -> None:
    """The directions q1 and q2 select token 0, q2 with the larger margin; units of the keys change neither
    direction.
    """
    keys, scores = np.array([[[0.0, 0.0], [-1.0, 0.0], [-1.0, -8.0]]]), np.array([[1.0, 0.0, 0.5]])
    for unit in (1.0, 2.0**40):
        np.savez(tmp_path / "q.npz", keys=keys * unit, scores=scores, q1=[3.0, 4.0], q2=[1.0, 0.0])
        given = load(str(tmp_path / "q.npz"), 0)
        normal = given.case.normalise()
        assert (normal.arrays["q1"].tolist(), normal.arrays["q2"].tolist()) == ([3.0, 4.0], [1.0, 0.0])
        assert verify_data("lemma-8", given).counts == {Verdict.UPHELD: 1}
    np.savez(tmp_path / "q.npz", keys=keys, scores=scores, q1=[1.0, 0.0], q2=[3.0, 4.0])
    assert verify_data("lemma-8", load(str(tmp_path / "q.npz"), 0)).counts == {Verdict.NOT_APPLICABLE: 1}


def test_names_of_figures_that_share_data_are_accepted_as_data() -> None:
    assert np.array_equal(load("figure-4b", 0).case.problem.keys, load("figure-4", 0).case.problem.keys)


PAIR = {"keys": [[[1.0, 0.0], [0.0, 0.5]]], "scores": [[1, 0]]}
TOKENS = {"X": [[[1.0, 0.0], [0.0, 0.5]]], "Y": [1], "v": [1, 0]}
QUERIED = TOKENS | {"queries": [[1, 1]]}
CALL = {name: [[[[1.0]]]] for name in ("query", "key", "value", "upstream")}


@pytest.mark.parametrize(
    ("values", "name", "value"),
    [
        (PAIR, "keys", [[[True, 0.0], [0.0, 0.5]]]),
        (PAIR, "scores", [[True, False]]),
        (PAIR, "alpha", [True]),
        (PAIR, "start", [0.5, False]),
        (PAIR, "p0", [False, 0.5]),
        (PAIR, "q", [1, True]),
        (PAIR, "eta", True),
        (TOKENS, "X", [[[1.0, 0.0], [False, 0.5]]]),
        (TOKENS, "Y", [True]),
        (TOKENS, "v", [True, 0.0]),
        (TOKENS, "W", [[1.0, True]]),
        (QUERIED, "queries", [[1, True]]),
        (QUERIED, "W0", [[1, True], [0, 1]]),
        (CALL, "key", [[[[True]]]]),
        (CALL, "bias", [[[[False]]]]),
    ],
)
def test_booleans_among_numbers_are_refused(tmp_path: Path, values: dict[str, Any], name: str, value: Any) -> None:
    """NumPy would silently convert booleans among numbers to 1 and 0."""
    for further in ({name: value}, *([{"arrays": {name: value}}] if name in ("q", "eta") else [])):
        (tmp_path / "data.json").write_text(to_json(values | further), encoding="utf-8")
        with pytest.raises(InvalidInput) as refused:
            load(str(tmp_path / "data.json"), 0, calls=True)
        assert str(refused.value) == f"{name}: true and false are no numbers; write 1 for true and 0 for false."


def test_booleans_in_an_npz_file_are_refused_as_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", keys=np.array([[[True, False], [False, True]]]), scores=[[1.0, 0.0]])
    with pytest.raises(InvalidInput, match=r"^keys: true and false are no numbers"):
        load(str(tmp_path / "data.npz"), 0)


def test_masks_may_be_truth_values(tmp_path: Path) -> None:
    """A mask is given in booleans or in zeros and ones."""
    queried = TOKENS | {"Y": [[1, 1]], "queries": [[[1, 1], [1, 2]]]}
    for further in ({"mask": [[[True, True], [False, True]]]}, {"mask": [[[1, 1], [0, 1]]]}, {"causal": True}):
        (tmp_path / "data.json").write_text(to_json(queried | further), encoding="utf-8")
        assert load(str(tmp_path / "data.json"), 0).case.sequence is not None
