"""The statement on a first step W(1) that separates the optimal tokens: its assumption is decided, W(1) has the claimed
margin, and planted faults are caught.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.assumptions import assumption_named
from generators.case import Case
from generators.query_cases import Family, query_cases
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import scaled_gradient
from reference_attention.training import descent
from reference_attention.training.descent import Trajectory, normalized_gradient_descent
from tests.theorems.token_selection.faults import planted
from tests.theorems.token_selection.global_paths.test_descent_from_a_margin import falsifies_all
from tests.theorems.token_selection.path_cases import claims_of, statement
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.transformers_as_svms.first_step import FIRST_STEP_CLAIMS

ID = "tsvm-first-step"


def queried(X: Any, queries: Any, Y: Any, v: Any, loss: str = "logistic") -> Case:
    data = QueryDataset(X, queries, Y, v, loss)
    return Case(data.problem, queried=data).normalise()


ORTHOGONAL = queried(
    [[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 2, 0], [0, 0, -2], [2, 0, 0]]], [[1, 0], [0, 1]], [1, -1], [3, 2, -1]
)
"""Data with orthogonal tokens of equal length within an input, and orthogonal queries; scores are 3, 2, −1 and −4, −2,
−6.
"""
PULLED_ASIDE = queried([[[1, 0], [0, 0]], [[-1, 0.25], [0, 0]]], [[1, 0], [1, 0]], [1, 1], [0.5, 4], "correlation")
"""Data whose optimal tokens lie nearly opposite to each other, so that the first step gives the first one no margin."""

CAUGHT_BY = {
    "negated-gradient": {"first-step-separates"},
    "descent-with-momentum": {"iterate-is-a-step"},
    "descent-from-elsewhere": {"run-is-the-one-asked-for"},
    "gradient-too-long": {"gradient-is-short", "softmin-of-margins"},
    "last-input-left-out": {"first-step-separates"},
    "svm-scaled": {"svm-is-optimal"},
}


def holds(case: Case) -> bool | None:
    return assumption_named("first-step-separates").check(case).holds


@settings(max_examples=3)
@given(statement(ID).cases())
def test_reference_upholds_generated_cases(case: Case) -> None:
    assert holds(case)
    outcome = check(statement(ID), case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_every_claim_on_a_first_step_is_made_and_upheld() -> None:
    claims = claims_of(ID, ORTHOGONAL, REFERENCE)
    assert set(claims) == set(statement(ID).claims)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_each_fault_is_caught_by_its_claims(fault: str) -> None:
    assert falsifies_all(ORTHOGONAL, planted(fault)[fault], CAUGHT_BY[fault], ID)


def _first_step(change: Any) -> Any:
    """Return an implementation in which ``change`` replaces the points of a normalized descent of one step."""

    def changed(problem: Any, start: np.ndarray, *, steps: int, **options: Any) -> Trajectory:
        run = descent.normalized_gradient_descent(problem, start, steps=steps, **options)
        return replace(run, points=change(run.points)) if steps == 1 else run

    return REFERENCE.replace("", {normalized_gradient_descent: changed})


def test_a_wrong_first_step_is_caught() -> None:
    shorter, elsewhere = _first_step(lambda points: points * 0.9), _first_step(lambda points: points + 1.0)
    asked_for, is_a_step, separates = FIRST_STEP_CLAIMS
    assert falsifies_all(ORTHOGONAL, shorter, {is_a_step, separates}, ID)
    assert falsifies_all(ORTHOGONAL, elsewhere, {asked_for}, ID)


def test_the_margin_of_the_first_step_on_orthogonal_data_is_the_closed_form() -> None:
    """With the correlation loss the margins after the first step are ‖z‖²‖x‖²(γ_opt − γ_t)/(nT), here at least
    1/(2·3).
    """
    data = ORTHOGONAL.queried
    assert data is not None
    same = Case(QueryDataset(data.X, data.queries, data.Y, data.v, "correlation").problem, queried=data)
    finding = assumption_named("first-step-separates").check(same)
    assert finding.holds
    scale = float(np.sum(data.X[0, 0] ** 2) * np.sum(data.queries[0] ** 2))
    assert f"{float(scale * Fraction(1, 6)):.6g}" in finding.evidence


def test_the_first_step_fails_where_another_input_pulls_the_other_way() -> None:
    assert holds(PULLED_ASIDE) is False
    assert check(statement(ID), PULLED_ASIDE, REFERENCE).verdict is Verdict.NOT_APPLICABLE


def test_the_first_step_is_undecided_within_the_rounding_of_the_loss() -> None:
    """The slopes of the loss differ, and the effects of the two inputs cancel up to the last bit."""
    ratio = (1 + np.exp(1.5)) / (1 + np.exp(0.5))  # |ℓ'(0.5)|/|ℓ'(1.5)|
    second = float(-ratio * (1.0 / 3.0))
    nearly = queried(
        [[[1.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0]]], [[1.0], [second]], [1, 1], [1, 0], "logistic"
    )
    assert holds(nearly) in (None, False)


def test_without_queries_the_first_step_is_undecided() -> None:
    assert holds(Case(ORTHOGONAL.problem)) is None


@settings(max_examples=25)
@given(query_cases(families=(Family.ORTHOGONAL,)))
def test_orthogonal_data_separate_by_construction(case: Case) -> None:
    assert holds(case)


@settings(max_examples=25)
@given(query_cases())
def test_the_predicate_agrees_with_the_gradient_at_zero(case: Case) -> None:
    problem = case.problem
    rows = np.take_along_axis(problem.keys, problem.optimal[:, None, None], axis=1) - problem.keys
    others = np.arange(problem.T) != problem.optimal[:, None]
    gradient = scaled_gradient(problem.keys, problem.scores, problem.loss, np.zeros(problem.d))
    margins = -(rows @ np.asarray(gradient.direction))[others]
    size = np.abs(rows)[others] @ np.abs(np.asarray(gradient.direction))
    if (np.abs(margins) > 1e-9 * size).all():
        assert holds(case) is bool((margins > 0).all())
