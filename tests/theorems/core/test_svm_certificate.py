"""Errors in a reported p_mm are detected, wherever they are and however small."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, locally_optimal, max_margin
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.core.svm_certificate import local_optimality_claim, svm_claim
from theorems.core.svm_flags import _gaining, _proves

KEYS = np.array([[[0.0, 0], [-1, 1], [-3, -1]], [[0.0, 0], [-1, -1], [-2, 5]]])
"""The constraints k·p ≥ 1 have k = (1, −1), (3, 1) in the first input and (1, 1), (2, −5) in the second; p_mm =
(1, 0).
"""
SCORES = np.array([[2.0, 1, 3], [1.0, -1, 2]])
PROBLEM, ALPHA = Problem(KEYS, SCORES), np.array([0, 0])


def solution(problem: Problem = PROBLEM) -> MaxMargin:
    solution = max_margin(problem.exact_keys, ALPHA[: problem.n])
    assert isinstance(solution, MaxMargin)
    return solution


def verdict(svm: MaxMargin, problem: Problem = PROBLEM) -> tuple[Verdict, str]:
    claim = svm_claim(problem, ALPHA[: problem.n], svm)
    return claim.verdict, claim.detail


def changed(array: np.ndarray, at: tuple[int, ...], to: Any) -> np.ndarray:
    result = array.copy()
    result[at] = to
    return result


def test_the_right_solution_is_certified() -> None:
    svm = solution()
    assert svm.p.tolist() == [1.0, 0.0]
    assert svm.neighbours.tolist() == [[False, True, False], [False, True, False]]
    assert verdict(svm) == (Verdict.UPHELD, "4 margins, 2 of them exactly what is required")


@pytest.mark.parametrize("at", [(0, 1), (0, 2), (1, 1), (1, 2)])
def test_every_margin_and_every_neighbour_is_checked(at: tuple[int, int]) -> None:
    svm = solution()
    which = f"token {at[1]} of input {at[0]}"
    result, why = verdict(replace(svm, margins=changed(svm.margins, at, svm.margins[at] * (1 + 64 * EPS))))
    assert result is Verdict.FALSIFIED
    assert f"the margin of {which} is {svm.margins[at]:g}, but reported as" in why
    result, why = verdict(replace(svm, neighbours=changed(svm.neighbours, at, not svm.neighbours[at])))
    assert result is Verdict.FALSIFIED
    assert f"{which} has margin" in why


def with_exact(svm: MaxMargin, **attributes: Any) -> MaxMargin:
    """Return the solution with some of its exact rationals replaced."""
    exact = copy(svm.exact)
    exact.__dict__.update(attributes)
    return replace(svm, exact=exact)


def test_the_violated_margin_of_a_wrong_point_is_named() -> None:
    svm = solution()
    short = with_exact(svm, p=[x / 2 for x in svm.exact.p])
    assert verdict(short) == (Verdict.FALSIFIED, "the margin of token 1 of input 0 is 0.5 < 1")


def test_duals_are_checked_with_the_constraints_of_their_own_inputs() -> None:
    """p_mm = ½ (1, −1) + ½ (1, 1), with one constraint of input 0 and one of input 1."""
    svm = solution()
    assert svm.exact.duals == {(0, 1): fmpq(1, 2), (1, 1): fmpq(1, 2)}
    wrong = with_exact(svm, duals={(0, 1): fmpq(1), (1, 1): fmpq(1, 3)})
    assert verdict(wrong) == (Verdict.FALSIFIED, "p_mm is not the sum of the rows times their duals")


@pytest.mark.parametrize("units", [8, -8])
def test_reported_floats_must_be_the_rounded_rationals(units: int) -> None:
    svm = solution()
    result, why = verdict(replace(svm, duals=changed(svm.duals, (1, 1), 0.5 * (1 + units * EPS))))
    assert (result, why) == (Verdict.FALSIFIED, "the float duals are not the rounded exact ones")
    result, why = verdict(replace(svm, p=changed(svm.p, (0,), 1 + units * EPS)))
    assert result is Verdict.FALSIFIED


class Misjudged(MaxMargin):
    """A solution that reports linearly independent constraints as dependent, and dependent ones as independent."""

    @property
    def independent(self) -> bool:
        return not solution_of(self).independent


def solution_of(svm: MaxMargin) -> MaxMargin:
    return MaxMargin(**{name: getattr(svm, name) for name in MaxMargin.__dataclass_fields__})


def test_a_wrong_flag_of_linear_dependence_is_detected() -> None:
    svm = solution()
    wrong = Misjudged(**{name: getattr(svm, name) for name in MaxMargin.__dataclass_fields__})
    assert verdict(wrong) == (Verdict.FALSIFIED, "the rows of 2 neighbours have rank 2, but are called dependent")


@pytest.mark.parametrize(("scores", "called"), [(SCORES, "γ"), (-SCORES, "−γ"), (0 * SCORES, "0")])
def test_local_optimality_is_tested_with_three_scores(scores: np.ndarray, called: str) -> None:
    """With γ, −γ and 0 as scores, neighbours score below α, above α and the same; each wrong answer is detected."""
    svm = solution()
    assert local_optimality_claim(PROBLEM, ALPHA, svm, REFERENCE).verdict is Verdict.UPHELD

    def wrong(given: MaxMargin, asked: np.ndarray) -> bool:
        return bool(locally_optimal(given, asked)) != np.array_equal(asked, scores)

    claim = local_optimality_claim(PROBLEM, ALPHA, svm, REFERENCE.replace("", {locally_optimal: wrong}))
    assert claim.verdict is Verdict.FALSIFIED
    assert f"for the scores {called} α is called" in claim.detail


@pytest.mark.parametrize(
    ("rows", "without", "proven"),
    [
        ([[1, 0], [1, 1]], [False, True], True),
        ([[1, 0], [1, 1]], [True, False], False),
        ([[1, 1], [1, -1]], [True, False], False),
        ([[1, 0]], [True], False),
        ([[1, 0], [2, 1], [1, 1]], [False, True, True], True),
        ([["1/4", 0], ["1/4", "1/4"]], [False, True], True),
        # The inner product with z can be as small as a rounding; z may need an entry of 10¹².
        ([[1, 0], [1, "1/1000000000000"]], [False, True], True),
        ([[1, 0, 0], [1, 5, 0], [1, -5, "1/1000000000000"]], [False, True, True], True),
        ([[1, 0, 0], [1, 5, 0], [1, -5, 0]], [False, True, True], False),
    ],
)
def test_a_direction_proves_that_neighbours_have_no_dual(
    rows: list[list[Any]], without: list[bool], proven: bool
) -> None:
    """A direction z with z·p = 0 and z·k ≥ 0 for all tight k proves that those with z·k > 0 have dual 0: z = (0, 1)
    does so for k = (1, 1), but no z for both (1, 1) and (1, −1).
    """
    exact = [[fmpq(x) for x in row] for row in rows]
    p = [fmpq(1), *[fmpq(0)] * (len(rows[0]) - 1)]
    z = _gaining(exact, without)
    assert _proves(z, exact, without, p) is proven
    assert not _proves([-x for x in z], exact, without, p)


def test_a_copy_of_a_support_token_moved_by_a_rounding_has_no_dual() -> None:
    """Only the copy differs from the other tokens in the first coordinate, by 1e-9; this proves that its dual is 0."""
    problem = Problem([[[0.0, 0.0], [0.0, -1.0], [1e-9, -1.0]]], [[1.0, 0.0, 0.0]])
    svm = solution(problem)
    assert svm.neighbours.sum() == 2
    assert not svm.strictly_complementary
    assert verdict(svm, problem) == (Verdict.UPHELD, "2 margins, 2 of them exactly what is required")
