"""The statement that independent differences of keys (rows) leave no stationary point: lower bounds of the gradient,
certified singular values, and planted faults that are caught.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq_mat
from hypothesis import given, settings
from numpy.linalg import eigvalsh

from generators.case import Case
from generators.query_cases import Family, query_cases
from reference_attention import risk
from reference_attention.loss import Array, Loss
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset, outer_keys_and_scores
from reference_attention.risk import ScaledGradient, scaled_gradient
from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow, gradient_flow
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.dataset_claims import QUERY_CLAIMS
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.transformers_as_svms.no_stationary_point import tsvm_no_stationary_point
from theorems.transformers_as_svms.row_independence import (
    certified_eigenvalue,
    difference_gram,
    identity,
    positive_definite,
    zero_sum_metric,
)

X = [[[2.0, 1.0, 0.0], [1.0, -1.0, 0.5], [0.0, 0.5, 1.0]], [[1.0, 0.0, 1.0], [-1.0, 2.0, 0.0], [-0.5, -1.0, 2.0]]]
QUERIES = [[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]


def query_case(X: object, queries: object, loss: str = "logistic") -> Case:
    data = QueryDataset(np.array(X), np.array(queries), [1.0] * len(np.array(X)), [1.0, 0.0, 0.0], loss)
    return Case(data.problem, queried=data, start=np.arange(data.problem.d) / 4.0, seed=3)


DISTINCT = query_case(X, QUERIES)
EQUAL = query_case([[[2.0, 1.0, 0.0], [1.0, -1.0, 0.5], [1.0, 0.5, 1.0]]], [[1.0, 0.5, -1.0]], "exponential")


def falsified(case: Case, under_test: Implementation) -> set[str]:
    outcome = check(tsvm_no_stationary_point, case, under_test)
    return {claim.name for claim in outcome.claims if claim.verdict is Verdict.FALSIFIED}


@given(tsvm_no_stationary_point.cases())
@settings(max_examples=6, deadline=None)
def test_no_stationary_point_is_upheld(case: Case) -> None:
    outcome = check(tsvm_no_stationary_point, case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_every_claim_on_stationary_points_is_made() -> None:
    names: set[str] = set()
    for case in (DISTINCT, EQUAL):
        outcome = check(tsvm_no_stationary_point, case, REFERENCE)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason
        names |= {claim.name for claim in outcome.claims}
    assert names == set(tsvm_no_stationary_point.claims)


def _shorter(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Return the gradient, multiplied by 1e-3 where the softmax saturates."""
    right = risk.scaled_gradient(keys, scores, loss, p)
    weights = risk.softmax_weights(keys, p).max(axis=-1).min(axis=-1)
    return replace(right, direction=right.direction * np.where(weights > 0.9, 1e-3, 1.0)[..., None])


SHORT_WHERE_SATURATED = REFERENCE.replace("short-where-saturated", {scaled_gradient: _shorter})


def _keys_of_tokens_alone(data: QueryDataset) -> tuple[Array, Array]:
    """Return keys with the first input's query for all inputs, and scores without labels."""
    n, T, _ = data.X.shape
    keys = (data.X[:, :, :, None] * data.queries[0]).reshape(n, T, -1)
    return keys, -(data.X @ data.v)


ONE_QUERY = REFERENCE.replace("one-query", {outer_keys_and_scores: _keys_of_tokens_alone})


def _gives_up(problem: Problem, start: Array, *, norm: float, **options: Any) -> Flow:
    """Return a flow that ends at a tenth of the requested norm, and reports that it ended early."""
    return replace(gradient_flow(problem, start, norm=norm / 10, **options), stop=Stop.STEPS)


FAULTS = [
    (ONE_QUERY, DISTINCT, set(QUERY_CLAIMS)),
    (
        fault_named("negated-gradient").implementation,
        EQUAL,
        {"separating-query-descends", "descent", "feasible-descent"},
    ),
    (fault_named("last-input-left-out").implementation, DISTINCT, {"gradient-norm", "saturation"}),
    (fault_named("loss-derivative-dropped").implementation, EQUAL, {"gradients-are-summable"}),
    (fault_named("cancelling-gradient").implementation, DISTINCT, {"gradient-norm"}),
    (fault_named("top-2").implementation, DISTINCT, {"gradient-norm"}),
    (fault_named("descent-with-momentum").implementation, DISTINCT, {"iterate-is-a-step"}),
    (fault_named("descent-from-elsewhere").implementation, DISTINCT, {"run-is-the-one-asked-for"}),
    (fault_named("gradient-too-long").implementation, DISTINCT, {"head-direction"}),
    (SHORT_WHERE_SATURATED, DISTINCT, {"gradient-norm", "saturation"}),
    (fault_named("flow-ends-half-way").implementation, DISTINCT, {"flow-is-the-one-asked-for"}),
    (fault_named("rolled-coordinates").implementation, DISTINCT, {"flow-is-of-this-gradient"}),
    (fault_named("flow-of-other-keys").implementation, DISTINCT, {"flow-chords"}),
    (REFERENCE.replace("gives-up", {gradient_flow: _gives_up}), DISTINCT, {"norm-diverges"}),
    (SHORT_WHERE_SATURATED, EQUAL, {"gradient-norm", "descent", "feasible-descent"}),
]


def test_every_claim_on_independent_rows_has_a_planted_fault() -> None:
    assert set().union(*(by for _, _, by in FAULTS)) == set(tsvm_no_stationary_point.claims)


@pytest.mark.parametrize(("under_test", "case", "by"), FAULTS, ids=lambda x: getattr(x, "name", ""))
def test_planted_faults_falsify_the_claims_on_independent_rows(
    under_test: Implementation, case: Case, by: set[str]
) -> None:
    assert falsified(case, under_test) >= by


def test_for_two_tokens_the_lower_bound_of_the_gradient_is_an_equality() -> None:
    """With a single row, a gradient that is shorter by a relative 1e-5 violates the lower bound."""
    case = query_case([[[1.0, 0.0, 2.0], [0.0, 1.0, 0.5]]], [[1.0, -1.0, 0.5]])

    def shorter(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        right = risk.scaled_gradient(keys, scores, loss, p)
        return replace(right, direction=right.direction * (1 - 1e-5))

    assert "gradient-norm" in falsified(case, REFERENCE.replace("shorter", {scaled_gradient: shorter}))


@given(query_cases(families=(Family.INDEPENDENT,)))
@settings(max_examples=15, deadline=None)
def test_singular_values_are_certified_and_close(case: Case) -> None:
    gram = difference_gram(case.problem, case.problem.optimal)
    keys = case.problem.keys
    chosen = keys[np.arange(case.problem.n), case.problem.optimal][:, None] - keys
    rows = chosen[np.arange(case.problem.T) != case.problem.optimal[:, None]]
    least = float(eigvalsh(rows @ rows.T)[0])
    of_rows = certified_eigenvalue(gram, identity(len(rows)))
    of_zero_sums = certified_eigenvalue(gram, zero_sum_metric(case.problem.n, case.problem.T))
    assert 0 < of_rows == pytest.approx(least, rel=1e-5, abs=1e-12 * float(np.abs(rows @ rows.T).max()))
    # For coefficients c of sum zero, Σ_t c_t² over all tokens is between one and T times the sum without α.
    assert of_rows / case.problem.T <= of_zero_sums * (1 + 1e-5)
    assert of_zero_sums <= of_rows * (1 + 1e-5)


def test_a_float_that_is_too_large_is_not_certified() -> None:
    assert positive_definite(fmpq_mat([[2, 1], [1, 2]]))
    assert not positive_definite(fmpq_mat([[1, 1], [1, 1]]))
    assert not positive_definite(fmpq_mat([[1, 2], [2, 1]]))
    dependent = Problem([[[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]], [[1.0, 0.0, 0.5]])
    assert certified_eigenvalue(difference_gram(dependent, dependent.optimal), identity(2)) == 0.0
