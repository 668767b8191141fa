"""The conjecture that flows on W end at locally optimal tokens if the differences of keys (rows) are independent:
upheld by the reference, and faults are caught.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from reference_attention.loss import Array
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset, outer_keys_and_scores
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow, gradient_flow
from tests.theorems.flows import flow_through
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.dataset_claims import QUERY_CLAIMS
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.transformers_as_svms import conjecture_independent_rows as module
from theorems.transformers_as_svms.conjecture_independent_rows import conjecture_independent_rows

DATA = QueryDataset(
    X=[[[2.0, 1.0, 0.0], [1.0, -1.0, 0.5], [0.0, 0.5, 1.0]], [[1.0, 0.0, 1.0], [-1.0, 2.0, 0.0], [-0.5, -1.0, 2.0]]],
    queries=[[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]],
    Y=[1.0, 1.0],
    v=[1.0, 0.0, 0.0],
)
MADE = Case(DATA.problem, queried=DATA, start=np.arange(9.0) / 9 - 0.5)


@given(conjecture_independent_rows.cases())
@settings(max_examples=3, deadline=None)
def test_the_conjecture_is_upheld(case: Case) -> None:
    outcome = check(conjecture_independent_rows, case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_every_claim_of_the_conjecture_on_independent_rows_is_made() -> None:
    outcome = check(conjecture_independent_rows, MADE, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    assert {claim.name for claim in outcome.claims} == set(conjecture_independent_rows.claims)


def _uphill(problem: Problem, start: Array, **options: Any) -> Flow:
    """Return the flow for negated scores, which selects tokens of low score."""
    return gradient_flow(Problem(problem.exact_keys, -problem.scores, problem.loss), start, **options)


def _stalled(problem: Problem, start: Array, **options: Any) -> Flow:
    """Return the flow, wrongly marked as converging to a finite point."""
    return replace(gradient_flow(problem, start, **options), stop=Stop.STATIONARY)


def _one_query(data: Any) -> tuple[Array, Array]:
    n, T, _ = data.X.shape
    return (data.X[:, :, :, None] * data.queries[0]).reshape(n, T, -1), -(data.X @ data.v)


FAULTS = [
    (REFERENCE.replace("one-query", {outer_keys_and_scores: _one_query}), set(QUERY_CLAIMS)),
    (fault_named("flow-from-elsewhere").implementation, {"flow-is-the-one-asked-for"}),
    (fault_named("flow-ends-half-way").implementation, {"flow-is-the-one-asked-for"}),
    (fault_named("svm-coordinate-off").implementation, {"svm-is-optimal"}),
    (REFERENCE.replace("uphill", {gradient_flow: _uphill}), {"selected-tokens-are-locally-optimal"}),
    (fault_named("flow-of-other-keys").of_size(1.0).implementation, {"direction-rate"}),
]


def test_every_claim_of_the_conjecture_has_a_planted_fault() -> None:
    assert set().union(*(by for _, by in FAULTS)) == set(conjecture_independent_rows.claims)


@pytest.mark.parametrize(("under_test", "by"), FAULTS, ids=lambda x: getattr(x, "name", ""))
def test_planted_faults_falsify_the_intended_claims_of_the_conjecture(under_test: Implementation, by: set[str]) -> None:
    outcome = check(conjecture_independent_rows, MADE, under_test)
    assert {claim.name for claim in outcome.claims if claim.verdict is Verdict.FALSIFIED} >= by


def test_a_flow_that_stalls_makes_the_conjecture_inconclusive() -> None:
    outcome = check(conjecture_independent_rows, MADE, REFERENCE.replace("stalled", {gradient_flow: _stalled}))
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "stalls" in outcome.reason


def test_a_flow_that_turns_late_is_followed_to_larger_norms() -> None:
    """With scores 2^−20 apart the flow turns only at norm 1e4; at norm 1e3 its deviation from W^mm is still growing."""
    near = 2.0 - 2.0**-20
    X = [
        [[-2.0, -1.0, 1.0, 3.0], [1.0, -3.0, -3.0, -3.0], [-4.0, 0.0, 0.0, 0.0]],
        [[-8.0, 0.0, 0.0, 0.0], [-5.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]],
        [[near, 3.0, 0.0, -3.0], [near - 1.5, 2.0, 1.0, 3.0], [2.0, 1.0, 2.0, 0.0]],
        [[3.0, 3.0, 2.0, 0.0], [4.0, -3.0, -3.0, 1.0], [1.0, 2.0, -3.0, 0.0]],
    ]
    data = QueryDataset(X, [x[0] for x in X], [1, 1, 1, -1], [1, 0, 0, 0], "exponential")
    outcome = check(conjecture_independent_rows, Case(data.problem, queried=data), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    assert next(claim for claim in outcome.claims if claim.name == "direction-rate").branch.startswith("in the cone")


def test_nearly_equal_tokens_are_distinguished_at_large_norms() -> None:
    """Logits differ by 2.4e-6 ‖W‖, so nothing is selected at norm 1e5/max|key|, and the flow is followed further."""
    data = QueryDataset([[[-2.0 + 2.0**-20], [-2.0]]], [[2.5]], [-1.0], [1.0], "correlation")
    outcome = check(conjecture_independent_rows, Case(data.problem, queried=data), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_the_deviations_that_are_compared_by_hand() -> None:
    """Deviations from the ray are taken at the last recorded norm up to a quarter of the largest, and at the largest
    norm; at least one logit, 1/5 for keys up to 5 apart, is allowed.
    """
    problem = Problem([[[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]]], [[1.0, 0.0, 0.5]])
    svm = max_margin([[[0.0, 2.0], [0.0, 0.0]]], [0])
    assert isinstance(svm, MaxMargin)  # along e_2
    norms = np.array([1.0, 2.0, 2.5, 3.0, 8.0])
    across = np.array([7.0, 3.0, 11.0, 13.0, 4.0])
    points = np.stack([across, norms], axis=1)
    assert module._deviations(problem, svm, flow_through(points, norms)) == (module.GROWTH * 3.0, 4.0)
    near = np.stack([across / 1e3, norms], axis=1)
    allowed, deviation = module._deviations(problem, svm, flow_through(near, norms))
    assert (allowed, deviation) == (pytest.approx(module.GROWTH / 5), pytest.approx(4e-3))


@pytest.mark.parametrize(("logit", "selected"), [(4.0, False), (5.0, True)])
def test_a_token_is_selected_if_its_weight_exceeds_99_percent(logit: float, selected: bool) -> None:
    """With logits 4 and 5 the other token has the weights 0.018 and 0.0067."""
    problem = Problem([[[1.0], [0.0]]], [[1.0, 0.0]])
    flow = flow_through([[9.0], [logit]], [9.0, logit])
    assert module._selects(problem, flow, np.array([0])) is selected
    assert not module._selects(problem, flow, np.array([1]))


def test_a_flow_is_compared_with_the_solution_for_rounded_keys() -> None:
    """The flow uses keys vec(x zᵀ) rounded to floats. Two tokens differ by 1e-12, so W^mm of rounded keys differs by
    3e-8 from W^mm of exact ones; the flow is compared with the former.
    """
    X = np.array([[[0.003, 0.0], [0.0, 0.001]], [[0.001, 0.002], [0.000999999999, 0.002]]])
    queries, v = np.array([[1.0, 0.0, 0.0], [0.748, 0.0, 0.663]]), np.array([-0.09564208984375, -0.392578125])
    data = QueryDataset(X, queries, -np.ones(2), v, "exponential")
    start = np.array([1.0, 0.0, -1.0, 1.0, 0.0, -1.0])
    outcome = check(conjecture_independent_rows, Case(data.problem, queried=data, start=start), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_a_flow_that_has_not_outgrown_its_start_is_undecided() -> None:
    """At the start a token of input 1 is behind by a logit of 4000. At ‖W‖ = 3e7 other margins are only 120, and the
    tokens of largest weight are not locally optimal; the flow turns only at 1e9.
    """
    X = np.zeros((3, 3, 5))
    X[0, 1:] = [[0.0, 1e-6, 0.0, 0.0, -1e-6], [0.0, -1e-6, 0.0, 1e-6, -1e-6]]
    X[1] = [[0.0, 1.0, 1.0, 0.0, 1.0], [0.0, -1.0, 1.0, 0.0, 1.0], [0.0, -1.0, 1.0, 0.0, 0.0]]
    X[2] = [[0.0, -1.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, -1.0]]
    queries = 2000.0 * np.array([[-1.0, -1.0, 0.0, -1.0], [0.0, -1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, -1.0]])
    v = np.array([2.449, -0.317, -0.273, 1.082, -0.98])
    start = np.array([[0, 1, -1, -1], [-1, 0, 0, 0], [0, 0, 0, -1], [0, -1, 1, 0], [-1, 0, -1, 1]], dtype=np.float64)
    data = QueryDataset(X, queries, np.array([-1.0, 1.0, -1.0]), v, "exponential")
    outcome = check(conjecture_independent_rows, Case(data.problem, queried=data, start=start.ravel()), REFERENCE)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert outcome.not_found
    assert "still turning" in outcome.reason


def test_a_near_tie_of_scores_that_decides_late_falsifies_nothing() -> None:
    """With scores −1 − 2⁻²⁰ and −1 in input 1, the flow gives the former most weight at ‖W‖ = 1e6, the optimal one at
    1e7.
    """
    near = 2.0**-20
    data = QueryDataset(
        X=[
            [[1, 2, 0, 2], [1.5, 2, 0, 3], [0, -3, 0, 3], [8.5, 0, 0, 0], [7.5, 1, -1, -2]],
            [[-1 - near, 2, -1, -3], [-4.600000858306885, 0, -2, -2], [0, -2, 0, 0], [-1, -1, 2, -1], [-1.5, 1, 3, 1]],
            [[-0.5, 0, -2, 2], [-2.600000858306885, 3, -2, -1], [-0.6, 3, 2, 2], [0, 3, -2, 1], [-3.6, 0, 0, 0]],
            [[-1.6, 0, 0, 0], [-1.6 - near, 1, 2, 3], [0, -2, 2, 3], [-0.1, 0, 0, -2], [-2.6, 2, 2, 3]],
        ],
        queries=[[3, 1, 3, 0, 3], [-1, 2, -1, 1, 3], [2, -1, -1, 2, 2], [0, 1, -2, -1, -2]],
        Y=[-1, 1, 1, 1],
        v=[1, 0, 0, 0],
    )
    outcome = check(conjecture_independent_rows, Case(data.problem, queried=data, seed=2615966251), REFERENCE)
    assert outcome.verdict is not Verdict.FALSIFIED, outcome.reason
    assert outcome.not_found
    assert "too little weight" in outcome.reason
