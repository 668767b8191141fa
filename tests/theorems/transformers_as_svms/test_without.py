"""Statements of the second paper without one assumption: on a recorded counterexample that is changed so that the
assumption holds, the conclusion holds, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.mixing_assumptions import PENALTY
from reference_attention.query_dataset import QueryDataset
from tests.places import ROOT
from tests.theorems.transformers_as_svms.mixing_examples import mixing_case
from tests.theorems.transformers_as_svms.test_conjecture_mixing import CAPPED
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE
from theorems.counterexamples.record import load
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.transformers_as_svms.without import frobenius_path
from theorems.without import ball_minimum

PAIRS = (
    ("tsvm-exact-support", "orthonormal-tokens"),
    ("tsvm-mixing", "orthonormal-tokens"),
    ("tsvm-mixing", "decided-attention"),
    ("conjecture-mixing", "masked-tokens-cost"),
)


def restored(case: Case, without: str) -> Case:
    """Return a case on which the assumption holds: the given one with half the penalty, or one with another head or
    other scores.
    """
    if without == "masked-tokens-cost":
        return CAPPED
    if without == "decided-attention":
        return case.replace(arrays={PENALTY: case.arrays[PENALTY] / 2})
    return mixing_case([np.eye(2)], [[1.0]], [8.0, 2.0], float(case.arrays[PENALTY][0]))


@pytest.mark.parametrize(("id", "without"), PAIRS)
def test_the_conclusion_holds_once_the_assumption_is_restored(id: str, without: str) -> None:
    weakened = weakened_named(id, without)
    case = load(ROOT / "counterexamples" / f"{weakened.name}.json").case
    assert weakened.statement.assumption(without).check(case).holds is False
    back = restored(case, without).normalise()
    for item in (without, *weakened.keeps):
        assert weakened.statement.assumption(item).check(back).holds is True, item
    claims = list(weakened.conclusion(back, REFERENCE))
    assert claims
    assert [c for c in claims if c.verdict is not Verdict.UPHELD] == []


def test_the_unit_of_radii_for_a_path_of_w_is_one_over_the_size_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Any] = []

    def path(name: str, risk: Any, d: int, unit: float, where: Any) -> Iterator[Claim]:
        records.append((d, unit))
        yield from ()

    monkeypatch.setattr(ball_minimum, "path_claim", path)
    data = QueryDataset([[[8.0], [0.0]], [[8.0], [0.0]]], [[1.0], [1.0]], [1.0, -1.0], [1.0], "correlation")
    list(frobenius_path.not_separable.conclusion(Case(data.problem, queried=data), REFERENCE))
    assert records == [(1, 1 / data.problem.key_scale)]
    assert data.problem.key_scale != 1
