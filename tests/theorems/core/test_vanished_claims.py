"""Claims that only the reference makes, since the tested implementation reports a wrong flag: they leave the statement
undecided.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from generators.case import Case
from generators.datasets import dataset_named
from reference_attention.losses import LOSSES
from reference_attention.outer_keys import rational_keys
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.core.check import check
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import statement
from theorems.core.svm_flags import wrong_flag
from theorems.core.tolerances import EXACT


@statement("flagged")
def flagged(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make one claim, and a second one if the neighbours' constraints are linearly independent."""
    yield Claim("always", Form.EXACT, 0.0, 0.0, EXACT)
    result = under_test[max_margin](case.problem.keys, case.chosen_tokens)
    if isinstance(result, MaxMargin) and result.independent:
        yield Claim("if-independent", Form.EXACT, 0.0, 0.0, EXACT)


INDEPENDENT = Problem(np.array([[[1.0, 0.0], [0.0, 0.0]]]), np.array([[1.0, 0.0]]), LOSSES["logistic"])
REPEATED = Problem(np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]]), np.array([[1.0, 0.0, 0.0]]), LOSSES["logistic"])
ON_THE_EDGE = Problem(
    np.array([[[2.0, 2.0], [1.0, 2.0], [2.0, 1.0], [0.0, 3.0]]]), np.array([[1.0, 0.0, 0.0, 0.0]]), LOSSES["logistic"]
)
"""p_mm = (1, 1); the tight k are (1, 0), (0, 1), (2, −1): linearly dependent, and all can have positive duals."""
NO_DUAL = Problem(np.array([[[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]), np.array([[1.0, 0.0, 0.0]]), LOSSES["logistic"])
"""p_mm = (1, 0); the tight k are (1, 0) and (1, 1): linearly independent, and the second has dual 0."""


def saying(**flags: Any) -> Implementation:
    def solve(keys: Any, alpha: Any) -> Any:
        result = copy(max_margin(keys, alpha))
        vars(result).update(flags)
        return result

    return REFERENCE.replace("flags", {max_margin: solve})


def test_a_vanished_claim_makes_the_statement_inconclusive() -> None:
    case = Case(INDEPENDENT)
    assert check(flagged, case, REFERENCE).verdict is Verdict.UPHELD
    outcome = check(flagged, case, saying(independent=False))
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert outcome.reason.startswith("if-independent: claimed for the reference")


@statement("fragile")
def fragile(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Raise with the reference as implementation, and make a claim with any other."""
    if under_test.name == REFERENCE.name:
        raise ZeroDivisionError("the reference")
    yield Claim("always", Form.EXACT, 0.0, 0.0, EXACT)


def test_a_comparison_that_raises_on_the_reference_is_inconclusive() -> None:
    outcome = check(fragile, Case(INDEPENDENT), saying())
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "ZeroDivisionError: the reference" in outcome.reason


@pytest.mark.parametrize("problem", [INDEPENDENT, REPEATED, ON_THE_EDGE, NO_DUAL])
def test_a_wrong_value_of_any_single_flag_is_detected(problem: Problem) -> None:
    solution = max_margin(problem.keys, problem.optimal)
    assert isinstance(solution, MaxMargin)
    assert not wrong_flag(problem, rational_keys(problem.exact_keys), problem.optimal, solution)
    for flags in (
        {"independent": not solution.independent},
        {"exact_maximal_duals": dict(list(solution.exact_maximal_duals.items())[1:])},
        {"exact_maximal_duals": dict.fromkeys([(0, t) for t in range(1, problem.T)], fmpq(3, 7))},
    ):
        wrong = saying(**flags)[max_margin](problem.keys, problem.optimal)
        assert isinstance(wrong, MaxMargin)
        assert wrong_flag(problem, rational_keys(problem.exact_keys), problem.optimal, wrong), flags


def test_the_example_problems_have_independent_rows_and_positive_duals_as_named() -> None:
    flags = []
    for problem in (INDEPENDENT, REPEATED, ON_THE_EDGE, NO_DUAL):
        solution = max_margin(problem.keys, problem.optimal)
        assert isinstance(solution, MaxMargin)
        assert solution.neighbours.sum() == problem.T - 1
        flags.append((solution.independent, solution.strictly_complementary))
    assert flags == [(True, True), (False, True), (False, True), (True, False)]


def test_the_reference_s_flags_of_figure_1a_are_right() -> None:
    problem = dataset_named("figure-1a").problem
    solution = max_margin(problem.keys, problem.optimal)
    assert isinstance(solution, MaxMargin)
    assert not wrong_flag(problem, rational_keys(problem.exact_keys), problem.optimal, solution)
