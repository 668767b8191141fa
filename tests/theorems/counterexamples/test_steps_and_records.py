"""Single steps of the simplifier of counterexamples, its order of numbers, and the contents of recorded files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from reference_attention.losses import LOSSES
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset
from theorems.core.claim import Claim, Form
from theorems.core.tolerances import EXACT
from theorems.counterexamples import simplification
from theorems.counterexamples.check import _why_not
from theorems.counterexamples.record import _is_effort, _is_finding
from theorems.counterexamples.simplification import (
    Parts,
    _among_keys,
    _complexity,
    _fewer,
    _narrower,
    _rounded_arrays,
    _simpler_values,
    _tokens_to_drop,
    simplify_counterexample,
)


def case_of(keys: Any, scores: Any, **further: Any) -> Case:
    return Case(Problem(np.array(keys, dtype=float), np.array(scores, dtype=float), LOSSES["correlation"]), **further)


def queried(d: int, e: int, start: bool = True) -> Case:
    """Return a case with d-dimensional tokens and e-dimensional queries; the entries of W(0) count from 1."""
    X = np.arange(1.0, 1 + 2 * d).reshape(1, 2, d)
    data = QueryDataset(X, np.arange(10.0, 10 + e)[None], np.array([1.0]), np.arange(1.0, 1 + d), LOSSES["correlation"])
    W = np.arange(1.0, 1 + d * e) if start else None
    return Case(data.problem, queried=data, start=W)


def test_dropping_a_token_dimension_drops_a_row_of_the_weights() -> None:
    """Tokens have dimension d = 2 and queries e = 3, so W(0) has the rows (1 2 3) and (4 5 6)."""
    steps = list(_narrower(Parts.of(queried(2, 3))))
    assert [step.arrays["start"].tolist() for step in steps[:2]] == [[1, 2, 3], [4, 5, 6]]
    assert [step.arrays["X"].tolist() for step in steps[:2]] == [[[[1], [3]]], [[[2], [4]]]]
    assert [step.arrays["v"].tolist() for step in steps[:2]] == [[1], [2]]
    assert [step.arrays["start"].tolist() for step in steps[2:]] == [[1, 2, 4, 5], [1, 3, 4, 6], [2, 3, 5, 6]]
    assert all(step.build() is not None for step in steps)


@pytest.mark.parametrize(("d", "e", "steps"), [(1, 1, 0), (1, 2, 2), (2, 1, 2)])
def test_the_last_dimension_of_tokens_or_queries_is_not_dropped(d: int, e: int, steps: int) -> None:
    assert len(list(_narrower(Parts.of(queried(d, e, start=False))))) == steps


def test_dropping_an_input_dimension_keeps_the_keys() -> None:
    """W maps tokens of two dimensions to keys of one; dropping a dimension of tokens drops a column of X, v and W."""
    data = Dataset(X=[[[1.0, 2.0], [3.0, 4.0]]], Y=[1.0], v=[5.0, 6.0], W=[[7.0, 8.0]], loss="correlation")
    steps = [step for step in _fewer(Parts.of(Case(data.problem, data))) if step.arrays["X"].shape[2] == 1]
    assert [step.arrays["X"].ravel().tolist() for step in steps] == [[1, 3], [2, 4]]
    assert [step.arrays["W"].tolist() for step in steps] == [[[7]], [[8]]]
    assert [step.arrays["v"].tolist() for step in steps] == [[5], [6]]


def test_chosen_tokens_are_renumbered_where_an_earlier_one_is_dropped() -> None:
    made = case_of([[[1.0], [2.0], [3.0]]], [[0.0, 1.0, 2.0]], alpha=np.array([1]))
    assert [item.tolist() for item in _tokens_to_drop(made)] == [[2], [0]]
    steps = [step for step in _fewer(Parts.of(made)) if step.arrays["keys"].shape[1] == 2]
    assert [(step.case.alpha.tolist(), step.arrays["scores"].tolist()) for step in steps] == [  # type: ignore[union-attr]
        ([1], [[0, 1]]),
        ([0], [[1, 2]]),
    ]


@pytest.mark.parametrize(
    ("name", "value", "among"),
    [
        ("start", np.zeros(3), True),
        ("start", np.zeros(2), False),
        ("p", np.zeros((3, 3)), False),
        ("eta", np.array(1.0), False),
        ("v", np.zeros(3), False),
    ],
)
def test_arrays_with_one_entry_per_coordinate_of_the_keys_are_recognised(
    name: str, value: np.ndarray, among: bool
) -> None:
    assert _among_keys(name, value, 3) is among


def test_arrays_are_rounded_to_halves_and_to_integers_in_smaller_units() -> None:
    steps = [
        step.arrays["keys"].ravel().tolist() for step in _rounded_arrays(Parts.of(case_of([[[0.26], [1.7]]], [[0, 0]])))
    ]
    assert steps[:4] == [[0, 0], [0, 2], [0.5, 1.5], [0.3, 1.7]]
    assert [5, 34] in steps
    assert [26, 170] in steps


def test_equal_values_become_simpler_together() -> None:
    parts = Parts.of(case_of([[[0.5], [0.5], [3.0]]], [[0.7, 0.2, 0.2]]))
    steps = [
        (step.arrays["keys"].ravel().tolist(), step.arrays["scores"].ravel().tolist())
        for step in _simpler_values(parts)
    ]
    assert ([0, 0, 3], [0.7, 0.2, 0.2]) in steps
    assert ([0.5, 0.5, 3], [0.7, 0, 0]) in steps
    assert all(keys[0] == keys[1] and keys[2] == 3 for keys, _ in steps)
    assert all(scores[1] == scores[2] and scores[0] == 0.7 for _, scores in steps)


def test_simple_numbers_are_tried_first() -> None:
    order = [0.0, 1.0, 2.0, -2.0, 10.0, 0.5, 100.0, 0.25, 0.125, 0.3]
    result = sorted(order, key=_complexity)
    assert result[:3] == [0.0, 1.0, 2.0]
    assert _complexity(2.0) < _complexity(-2.0) < _complexity(3.0)
    assert _complexity(100.0) < _complexity(123.0) < _complexity(12345.0)
    assert _complexity(0.5) < _complexity(0.25) < _complexity(0.125) < _complexity(0.3)


def test_simplification_tries_steps_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplification, "STEPS", 5)
    tried: list[Case] = []

    def never(case: Case) -> bool:
        tried.append(case)
        return False

    simplify_counterexample(case_of([[[0.3, 0.7], [1.9, 5.3]]], [[0.1, 0.2]]), never)
    assert len(tried) == 5


FINDING = {"id": "separable", "holds": None, "because": "of it"}


@pytest.mark.parametrize(
    ("changed", "right"),
    [
        ({}, True),
        ({"exact": {"x": 1}, "exact_of": "x"}, True),
        ({"further": 1}, False),
        ({"id": 3}, False),
        ({"holds": "yes"}, False),
        ({"because": None}, False),
        ({"exact": []}, False),
        ({"exact_of": 1}, False),
    ],
)
def test_a_recorded_finding_is_valid_only_with_values_of_the_right_types(changed: dict[str, Any], right: bool) -> None:
    assert _is_finding(FINDING | changed) is right


def test_a_recorded_finding_needs_all_its_keys() -> None:
    assert not _is_finding({"id": "separable", "holds": True})
    assert not _is_finding([])


@pytest.mark.parametrize(
    ("effort", "right"),
    [
        ({"cases": 3}, True),
        ({"cases": 3, "rounds": 0}, True),
        ({"rounds": 3}, False),
        ({"cases": -1}, False),
        ([], False),
    ],
)
def test_a_recorded_effort_is_valid_only_with_counts_of_cases(effort: Any, right: bool) -> None:
    assert _is_effort(effort) is right


def claim(slack: float, undecided: str = "") -> Claim:
    return Claim("sum", Form.EXACT, slack, 0.0, EXACT, undecided=undecided)


def test_the_reason_why_a_case_is_no_counterexample() -> None:
    """The function returns a reason, and whether something is undecided, so that the case may still be one."""
    assert _why_not((), [], "") == ("the conclusion made no claim", True)
    lost = claim(math.nan, "no digits")
    assert _why_not((lost,), [lost], "") == ("sum: no digits", True)
    right = claim(1.0)
    assert _why_not((right,), [right], "") == ("the conclusion holds", False)
    assert _why_not((right,), [], "other") == ("other is not claimed on this case, only sum", True)
