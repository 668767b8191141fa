"""The statements on flow and descent on (K, Q): every claim is made, upheld, and falsified by a planted fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.assumptions import assumption_named
from generators.case import Case
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.descent import Stop
from reference_attention.training.factored_flow import FactoredFlow, factored_flow
from reference_attention.training.factorization import Layout, factored_slope, safe_step_of
from tests.theorems.token_selection.faults import planted
from tests.theorems.token_selection.global_paths.test_descent_from_a_margin import falsifies_all
from tests.theorems.token_selection.path_cases import claims_of, statement
from theorems.bounded import value_of
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.rounding.singular_values import singular_values
from theorems.transformers_as_svms.curves.factored_certificate import (
    certificate_sides,
    signed_variances,
    singular_value_growth,
    trapezoids,
)
from theorems.transformers_as_svms.curves.factored_flow_run import FactoredArcFlow
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints
from theorems.transformers_as_svms.faults.factored_faults import RUN, STEP

FLOW, DESCENT = "tsvm-factored-flow", "tsvm-factored-descent"


def queried(X: Any, queries: Any, Y: Any, v: Any, **arrays: Any) -> Case:
    data = QueryDataset(X, queries, Y, v)
    values = {name: np.array(value, dtype=np.float64) for name, value in arrays.items()}
    return Case(data.problem, queried=data, arrays=values).normalise()


TWO = ([[[1, 2], [-1, 1], [0, -1]], [[-1, 0], [2, 1], [0, 2]]], [[1, 0.5], [-0.5, 1]], [1, -1], [1, 0])
CASE = queried(*TWO)

CAUGHT_BY = {
    "factor-frozen": {"imbalance-changes-by", "iterate-is-a-step", "imbalance-drifts-at-most"},
    "factors-normalised-apart": {"imbalance-changes-by", "normalized-iterate-is-a-step"},
    "factors-get-the-gradient-of-w": {"imbalance-changes-by"},
    "factors-swapped": {"imbalance-changes-by", "iterate-is-a-step"},
    "factor-not-transposed": {"imbalance-changes-by"},
    "factors-at-two-speeds": {"imbalance-changes-by"},
    "factors-of-rank-one": {"run-is-the-one-asked-for"},
    "factors-rotated": {"imbalance-changes-by"},
    "factored-descent-stands-still": {"step-is-as-long-as-is-safe"},
}
FLOW_CATCHES = {
    "factor-frozen": {"imbalance-is-conserved", "flow-chords"},
    "factors-normalised-apart": {"imbalance-is-conserved", "flow-chords"},
    "factors-at-two-speeds": {"imbalance-is-conserved"},
    "factors-of-rank-one": {"flow-is-the-one-asked-for"},
    "factors-rotated": {"imbalance-is-conserved"},
    "gradient-too-long": {"certificate"},
}


@pytest.mark.parametrize("id", [FLOW, DESCENT])
def test_the_statements_on_factors_are_upheld_on_generated_cases(id: str) -> None:
    @settings(max_examples=4)
    @given(statement(id).cases())
    def upheld(case: Case) -> None:
        outcome = check(statement(id), case, REFERENCE)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason

    upheld()


@pytest.mark.parametrize("id", [FLOW, DESCENT])
def test_every_claim_on_factors_is_made_and_upheld(id: str) -> None:
    claims = claims_of(id, CASE, REFERENCE)
    assert set(claims) == set(statement(id).claims)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_each_planted_fault_falsifies_claims_on_descent_on_factors(fault: str) -> None:
    assert falsifies_all(CASE, planted(fault)[fault], CAUGHT_BY[fault], DESCENT)


@pytest.mark.parametrize("fault", [name for name in FLOW_CATCHES if name != "gradient-too-long"])
def test_each_planted_fault_falsifies_claims_on_the_flow_on_factors(fault: str) -> None:
    assert falsifies_all(CASE, planted(fault)[fault], FLOW_CATCHES[fault], FLOW)


def test_every_fault_of_factors_is_in_a_table_of_caught_faults() -> None:
    assert {fault.name for fault in (*RUN, *STEP)} <= {*CAUGHT_BY, *FLOW_CATCHES, "factored-step-without-square"}


def test_a_step_without_the_square_may_ascend_from_uneven_factors() -> None:
    fault = planted("factored-step-without-square")["factored-step-without-square"]
    case = next(item for item in (CASE.replace(seed=k) for k in range(20)) if not _upheld(item, fault))
    assert claims_of(DESCENT, case, fault)["descends"].verdict is not Verdict.UPHELD


def _upheld(case: Case, implementation: Any) -> bool:
    return check(statement(DESCENT), case, implementation).verdict is Verdict.UPHELD


def test_steps_of_half_the_safe_length_are_falsified(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim covers all steps of two runs; each step under test is half as long, so the slack is −log 2."""
    module = "reference_attention.training.factored_descent.safe_step_of"
    monkeypatch.setattr(module, lambda *of: safe_step_of(*of) - np.log(2.0))
    claim = claims_of(DESCENT, CASE, REFERENCE)["step-is-as-long-as-is-safe"]
    assert claim.verdict is Verdict.FALSIFIED
    assert claim.slack == pytest.approx(-np.log(2.0), rel=1e-9)


def test_the_assumption_on_the_imbalance_of_a_user_s_start_is_decided() -> None:
    assumption = assumption_named("definite-imbalance")
    definite = queried(*TWO, K0=[[2, 0], [0, 2]], Q0=[[1, 0], [0, 1]])
    edge = queried(*TWO, K0=[[1, 0], [0, 2]], Q0=[[1, 0], [0, 1]])
    thin = queried(*TWO, K0=[[2], [2]], Q0=[[1], [1]])
    assert [assumption.check(case).holds for case in (CASE, definite, edge, thin)] == [True, True, False, False]


def test_a_curve_of_straight_pieces_is_refuted_as_a_flow() -> None:
    """Every other point is moved to the middle of the points before and after, so the curve is no flow."""

    def interpolate(data: Any, K: Any, Q: Any, **options: Any) -> FactoredFlow:
        flow = factored_flow(data, K, Q, **options)
        points = flow.points
        points[2:-1:2] = (points[1:-2:2] + points[3::2][: len(points[2:-1:2])]) / 2
        held = dict(zip("KQ", flow.layout.split(points), strict=True))
        return replace(flow, norms=np.linalg.norm(points, axis=1), **held)

    faulty = REFERENCE.replace("straight", {factored_flow: interpolate})
    claims = claims_of(FLOW, CASE, faulty)
    assert claims["flow-chords"].verdict is Verdict.FALSIFIED
    assert claims["imbalance-is-conserved"].verdict is Verdict.FALSIFIED


def test_a_flow_that_ends_early_is_falsified_unless_the_reference_ends_early_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gives_up(*arguments: Any, **options: Any) -> FactoredFlow:
        return replace(factored_flow(*arguments, **options), stop=Stop.STATIONARY)

    other = REFERENCE.replace("other", {factored_flow: gives_up})
    assert claims_of(FLOW, CASE, other)["norm-diverges"].verdict is Verdict.FALSIFIED
    monkeypatch.setattr("theorems.transformers_as_svms.curves.factored_flow_run.factored_flow", gives_up)
    assert claims_of(FLOW, CASE, REFERENCE)["norm-diverges"].verdict is Verdict.INCONCLUSIVE


def test_where_rounding_leaves_no_point_a_margin_of_1_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding leaves no point a margin of 1, for example, if queries differ by a relative 1e-12."""
    module = "theorems.transformers_as_svms.factored_flow.points_with_margin"
    monkeypatch.setattr(module, lambda *of: np.zeros((3, CASE.problem.d)))
    claim = claims_of(FLOW, CASE, REFERENCE)["climbs-outward"]
    assert (claim.verdict, claim.undecided) == (Verdict.INCONCLUSIVE, "rounding leaves no point a margin of 1")


def test_the_curvature_for_a_piece_of_the_flow_is_the_hessian_of_the_risk() -> None:
    problem, layout = CASE.problem, Layout(2, 2, 3)
    point = np.random.default_rng(3).normal(size=12)
    unit, curvature = FactoredArcFlow(problem, layout)._curvature(point)
    slope = factored_slope(problem, layout)
    assert slope.newton is not None
    _, gradient, hessian = slope.newton(point)
    length = np.linalg.norm(gradient)
    assert unit == pytest.approx(gradient / length, rel=1e-12)
    assert curvature == pytest.approx(hessian / length, abs=1e-12 * np.abs(hessian).max() / length)


def test_singular_values_grow_at_most_as_the_certificate_allows() -> None:
    flow = factored_flow(CASE.queried, 3 * np.eye(2), [[2.0, 1.0], [1.0, 2.0]], norm=100.0, relative=1e-12)
    points = FactoredPoints.of(CASE.problem, flow.K, flow.Q)
    total, leads = certificate_sides(points.at)
    assert leads[-1]
    descent = -points.at.gradient.reshape(flow.W.shape)
    spectrum = singular_values(descent)
    grown, allowed, off = singular_value_growth(points, descent, spectrum)
    assert (grown <= allowed + off).all()
    assert trapezoids(np.array([0.0, 1.0, 3.0]), np.array([[1.0], [3.0], [5.0]])).ravel().tolist() == [0.0, 2.0, 10.0]
    assert (value_of(total) > 0)[leads].all()


def test_signed_variances_are_those_of_scores_under_the_softmax_weights() -> None:
    points = FactoredPoints.of(CASE.problem, np.eye(2)[None], np.eye(2)[None])
    weights, scores = value_of(points.at.weights)[0], CASE.problem.scores
    means = (weights * scores).sum(axis=1)
    slopes = np.exp(CASE.problem.loss.log_slope(means))
    due = slopes * (weights * (scores - means[:, None]) ** 2).sum(axis=1)
    result = value_of(signed_variances(points.at))[0] * np.exp(points.at.log_scale[0])
    assert result == pytest.approx(due, rel=1e-12)


def test_a_normalized_step_of_unresolved_direction_leaves_all_claims_upheld() -> None:
    """The first gradient of the normalized run is smaller than its rounding, though the step has the usual length."""
    X = [
        [[0, 0, 0], [-0.25, 0, 3], [-0.25, 0, 0]],
        [[0, 0, 0], [0.25, 0, 2.9375], [0.25 - 2.0**-22, 0, -3]],
        [[-(2.0**-22), 0, 0], [0, 0, 0], [-0.25, 0, 0]],
        [[-(2.0**-22), 0, 0], [0, 0, 0], [-0.25, 0, 0]],
    ]
    data = QueryDataset(X, [[0, 2], [0, 4], [0, 1], [0, 1]], [1, 1, 1, 1], [1, 0, 0], "correlation")
    case = Case(data.problem, queried=data, seed=336).normalise()
    outcome = check(statement(DESCENT), case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
