"""The statement on descent from a start with a margin: upheld by the reference, falsified by planted faults; its bounds
are not vacuous.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training import flow as flows
from reference_attention.training.descent import gradient_descent
from reference_attention.training.flow import Flow, gradient_flow
from tests.theorems.token_selection.faults import planted
from tests.theorems.token_selection.path_cases import case, claims_of, statement
from theorems.bounded import exact, value_of
from theorems.core.check import check
from theorems.core.claim import Claim, Verdict, until_undecided
from theorems.core.implementation import REFERENCE, Implementation
from theorems.curves.followed_flow import FLOW_PREMISES
from theorems.curves.margin_points import starts_with_margin, with_least_margin
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.global_paths.descent_from_a_margin import (
    CLIMBS_ALONG,
    CORRELATION,
    MARGIN_CLAIMS,
    SOFTMIN,
    along_long_steps,
    at_points,
)
from theorems.token_selection.global_paths.long_steps import STEPS, long_steps
from theorems.token_selection.global_paths.margin_constants import MarginConstants

ID = "descent-from-a-margin"

TWO = case([[[1.0, 0.0], [0.0, 0.0]]], [[1, 0]], "correlation")
"""One input of two tokens, whose constant κ is log 2; 200 steps of gradient descent change the margin by more."""
UNEVEN = case([[[1, 0.2], [0, 0.1], [-0.3, 1]], [[0.7, 0.9], [0, 0], [0.1, 0.3]]], [[1, 0.5, 0.25], [2, 0, 1]])
"""Two inputs with unequal scores, so Theorem 2 does not give the limit direction."""

CAUGHT_BY = {
    "negated-gradient": {"climbs-along-p_mm", "correlation", "climbs", "turns", "normalized-turns"},
    "gradient-too-long": {"gradient-is-short", "softmin-of-margins"},
    "detached-normaliser": {"gradient-is-short", "softmin-of-margins"},
    "last-input-left-out": {"climbs-along-p_mm", "correlation"},
    "descent-with-momentum": {"iterate-is-a-step", "normalized-iterate-is-a-step"},
    "normalized-with-floor": {"normalized-iterate-is-a-step", "normalized-norm-grows"},
    "descent-from-zero": {"run-is-the-one-asked-for"},
    "rolled-coordinates": {"normalized-run-climbs", "normalized-turns"},
    "flow-of-other-keys": {"flow-chords"},
    "flow-ends-half-way": {"flow-is-the-one-asked-for"},
    "svm-scaled": {"svm-is-optimal"},
}
"""For each fault, claims that it falsifies (perhaps not all of them)."""


def falsifies_all(given_case: Case, under_test: Implementation, expected: set[str], id: str = ID) -> bool:
    """Return whether all expected claims are falsified; stop at the last of them."""
    missing = set(expected)
    for claim in statement(id).conclusion(given_case, under_test):
        if claim.verdict is Verdict.FALSIFIED:
            missing.discard(claim.name)
        if not missing:
            return True
    return False


@cache
def upheld() -> dict[str, Claim]:
    return claims_of(ID, UNEVEN, REFERENCE)


@settings(max_examples=3)
@given(statement(ID).cases())
def test_reference_upholds_generated_cases(given_case: Case) -> None:
    outcome = check(statement(ID), given_case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_every_claim_is_made_and_upheld_with_unequal_scores_and_two_inputs() -> None:
    claims = upheld()
    assert set(claims) == set(MARGIN_CLAIMS)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_each_fault_is_caught_by_its_claims(fault: str) -> None:
    assert falsifies_all(UNEVEN, planted(fault)[fault], CAUGHT_BY[fault])


def test_a_wrong_start_of_normalized_descent_is_caught_by_the_claim_on_normalized_runs() -> None:
    under_test = planted("descent-from-zero")["descent-from-zero"]
    only = under_test.replace("", {gradient_descent: gradient_descent})
    assert falsifies_all(UNEVEN, only, {"normalized-run-is-the-one-asked-for"})


def test_a_run_against_the_gradient_loses_its_margin() -> None:
    assert falsifies_all(TWO, planted("negated-gradient")["negated-gradient"], {"margin-is-kept"})


def _flow(change: Any) -> Implementation:
    def changed(problem: Problem, start: np.ndarray, **options: Any) -> Flow:
        result = flows.gradient_flow(problem, start, **options)
        return replace(result, points=change(result, problem))

    return REFERENCE.replace("", {gradient_flow: changed})


def _thrown_back(found: Flow, problem: Problem) -> np.ndarray:
    return np.concatenate([found.points[:1], -found.points[1:]])


def _beside(found: Flow, problem: Problem) -> np.ndarray:
    """Return the flow's points, all but the first turned about the origin by half a radian."""
    points = found.points.copy()
    c, s = np.cos(0.5), np.sin(0.5)
    points[1:] = points[1:] @ np.array([[c, s], [-s, c]])
    return points


def test_a_curve_that_is_no_flow_is_caught_by_margin_and_direction() -> None:
    assert falsifies_all(TWO, _flow(_thrown_back), {"flow-margin-is-kept"})
    assert falsifies_all(TWO, _flow(_beside), {"flow-turns", "flow-offset-is-kept"})


def _constants(given_case: Case) -> MarginConstants:
    problem = given_case.problem
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    return MarginConstants(problem, svm)


class Wrong(MarginConstants):
    """Constants with two faults: K (``spread``) lacks the logarithm of the number of rows, and ``share`` is 1."""

    @property
    def spread(self) -> Any:  # type: ignore[override]
        return np.max(self.log_gaps) - np.min(self.log_gaps) - 1e-3

    def share(self, m: Any) -> Any:
        return 1 + 0 * self.odds_bound(m)


@pytest.mark.parametrize("name", [CLIMBS_ALONG, SOFTMIN, CORRELATION])
def test_bounds_with_wrong_constants_fail(name: str) -> None:
    """With three equal differences of keys, every bound is an equality up to its constants."""
    three_rows = case([[[1.0], [0.0], [0.0], [0.0]]], [[1, 0, 0, 0]])
    svm = max_margin(three_rows.problem.keys, three_rows.problem.optimal)
    assert isinstance(svm, MaxMargin)
    by_name: dict[str, Claim] = {
        claim.name: claim for claim in at_points(Wrong(three_rows.problem, svm), REFERENCE, np.random.default_rng(0))
    }
    assert by_name[name].verdict is Verdict.FALSIFIED


def test_with_least_margin_moves_points_to_the_requested_margin() -> None:
    constants, rng = _constants(UNEVEN), np.random.default_rng(1)
    expected = np.exp(rng.uniform(-3, 9, 40))
    points = with_least_margin(constants, rng.normal(size=(40, 2)) * 100, expected)
    result = constants.margins(exact(points))
    assert (result >= expected).all()
    np.testing.assert_allclose(result.value, expected, rtol=1e-9, atol=1e-9)


def test_the_claims_on_the_flow_imply_a_distance_below_1e_9_from_p_mm() -> None:
    claims = upheld()
    assert all(
        claims[name].verdict is Verdict.UPHELD
        for name in (*FLOW_PREMISES, "norm-diverges", "flow-margin-is-kept", "flow-turns", "flow-offset-is-kept")
    )
    allowed = float(claims["flow-offset-is-kept"].detail.split(" ≥ ")[0])
    assert allowed < 40  # then 1 − cos ≤ (40 + |q|)²/2e12 at norm 1e6, with q the limit of the offset


def test_long_steps_increase_norms_and_decrease_angles_by_orders_of_magnitude() -> None:
    """From a start with a large margin, norm and angle hardly change with plain gradient descent, but do with long
    steps.
    """
    constants = _constants(UNEVEN)
    starts = starts_with_margin(UNEVEN, constants, np.random.default_rng(0))
    result = long_steps(constants, REFERENCE, starts, STEPS, "long-steps-climb")
    last, direction = result.points[-1][1], constants.svm.direction
    first, end = (1 - p @ direction / np.linalg.norm(p, axis=1) for p in (starts, last))
    assert (np.linalg.norm(last, axis=1) > 10 * np.linalg.norm(starts, axis=1)).all()
    assert first.max() > 0.05
    assert end[np.argmax(first)] < first.max() / 100
    margins = np.array([np.min(p[1] @ value_of(constants.rows).T, axis=1) for p in result.points])
    assert (margins >= float(value_of(constants.region))).all()


@pytest.mark.parametrize("fault", ["negated-gradient", "rolled-coordinates", "descent-from-elsewhere"])
def test_faulty_long_steps_are_caught(fault: str) -> None:
    under_test = planted(fault)[fault]
    constants = _constants(UNEVEN)
    starts = starts_with_margin(UNEVEN, constants, np.random.default_rng(0))
    claims = list(until_undecided(along_long_steps)(constants, under_test, starts))
    assert Verdict.FALSIFIED in {claim.verdict for claim in claims}


def test_a_claim_is_undecided_if_rounding_leaves_no_point_with_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "theorems.token_selection.global_paths.descent_from_a_margin"
    monkeypatch.setattr(f"{module}.points_with_margin", lambda *of: np.zeros((3, UNEVEN.problem.d)))
    monkeypatch.setattr(f"{module}.climb", lambda rng, points, violation: points)
    claim = claims_of("descent-from-a-margin", UNEVEN, REFERENCE)["climbs-along-p_mm"]
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert "no point has a margin that exceeds" in claim.undecided


def test_a_margin_that_no_float_resolves_leaves_a_claim_of_the_statement_undecided() -> None:
    check_margin_beyond_floats("descent-from-a-margin", "margin-is-kept")


def check_margin_beyond_floats(id: str, claim: str) -> None:
    """Assert that the claim is undecided where the start needs a margin that float64 does not resolve."""
    keys = [[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.5], [0.0, 0.0]]]
    problem = Problem(keys, [[4e4, -1.0], [1.0, 0.0]], "logistic")
    outcome = check(statement_named(id), Case(problem), REFERENCE)
    assert outcome.reason.startswith(f"{claim}: the start needs a margin of 4e+04"), outcome.reason
