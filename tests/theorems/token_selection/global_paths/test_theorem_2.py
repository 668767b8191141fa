"""Theorem 2: upheld by the reference, falsified by planted faults; its bounds and predictions checked directly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.descent import gradient_descent
from reference_attention.training.flow import gradient_flow
from tests.theorems.token_selection.faults import FAULTS
from tests.theorems.token_selection.path_cases import (
    BEYOND_FLOAT,
    CORNERS,
    claims_of,
    falsified,
    figure_1a,
    random_cases,
    statement,
)
from theorems.bounded import in_floats
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.curves.constraints import Constraints
from theorems.token_selection.global_paths.flow_offset import FlowOffset
from theorems.token_selection.global_paths.theorem_2_global_convergence import (
    climb_bound,
    correlation_deficit,
    log_rate,
)

SINGLE = {"correlation-step", "correlation-lower-bound", "flow-correlation", "flow-offset-is-kept"}
"""Claims that are made for one input only."""

CAUGHT_BY: dict[str, str] = {
    "temperature": "flow-is-of-this-gradient",
    "masked-token": "climbs-to-max-margin",
    "epsilon-in-denominator": "climbs-to-max-margin",
    "float32-softmax": "flow-is-of-this-gradient",
    "clipped-logits": "flow-is-of-this-gradient",
    "negated-gradient": "climbs-like-log-t",
    "gradient-too-long": "steps-are-summable",
    "one-coordinate-off": "flow-is-of-this-gradient",
    "rolled-coordinates": "correlation-step",
    "weight-decay": "climbs-like-log-t",
    "wrong-loss-derivative": "steps-are-summable",
    "diagonal-jacobian": "correlation-lower-bound",
    "detached-normaliser": "correlation-lower-bound",
    "cancelling-gradient": "flow-is-of-this-gradient",
    "svm-scaled": "svm-is-optimal",
    "svm-misses-a-constraint": "svm-is-optimal",
    "svm-with-bias": "svm-is-optimal",
    "svm-for-another-token": "svm-is-optimal",
    "neighbours-by-tolerance": "svm-is-optimal",
    "neighbour-lost": "svm-is-optimal",
    "svm-always-infeasible": "svm-is-optimal",
}
"""For each fault, a claim that it falsifies."""

MISSED: dict[str, str] = {}
"""Faults under which the theorem remains true, with the reason."""


@settings(max_examples=12)
@given(statement("theorem-2").cases())
def test_reference_upholds_generated_cases(given_case: Case) -> None:
    outcome = check(statement("theorem-2"), given_case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    assert (given_case.problem.n == 1) == ({c.name for c in outcome.claims} >= SINGLE)


@pytest.mark.parametrize("name", CORNERS)
def test_theorem_2_is_upheld_on_corner_cases(name: str) -> None:
    outcome = check(statement("theorem-2"), CORNERS[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_theorem_2_beyond_float64_is_undecided_with_a_reason() -> None:
    for far in BEYOND_FLOAT.values():
        outcome = check(statement("theorem-2"), far, REFERENCE)
        assert outcome.verdict is Verdict.INCONCLUSIVE
        assert "float64" in outcome.reason


@pytest.mark.parametrize("start", [1.0, 0.5, 0.0, -0.5, -1.0, -1.5])
def test_theorem_2_is_upheld_on_figure_1a_from_each_start(start: float) -> None:
    claims = claims_of("theorem-2", figure_1a(start), REFERENCE)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())
    assert set(claims) >= SINGLE


def test_each_planted_fault_is_caught_by_the_intended_claim_of_theorem_2() -> None:
    cases = [CORNERS["two-tokens"], *random_cases(2, equal=True)]
    assert set(CAUGHT_BY) | set(MISSED) == set(FAULTS)
    for fault, claim in CAUGHT_BY.items():
        assert any(claim in falsified("theorem-2", c, FAULTS[fault]) for c in cases), fault
    for fault in MISSED:
        assert not any(falsified("theorem-2", c, FAULTS[fault]) for c in cases), fault


def test_for_textbook_kernels_theorem_2_claims_no_limits_and_is_upheld() -> None:
    for given_case in random_cases(2, equal=True):
        for name, eps in (("cancelling-gradient", 2.0**-52), ("float32-softmax", 2.0**-23)):
            kernel = replace(FAULTS[name], textbook_eps=eps)
            outcome = check(statement("theorem-2"), given_case, kernel)
            assert outcome.verdict is Verdict.UPHELD, outcome.reason
            assert not {c.name for c in outcome.claims} & {"norm-diverges", "flow-correlation"}
        wrong = replace(FAULTS["negated-gradient"], textbook_eps=2.0**-52)
        assert "climbs-to-max-margin" in falsified("theorem-2", given_case, wrong)


def _svm(problem: Problem) -> MaxMargin:
    solution = max_margin(problem.keys, problem.optimal)
    assert isinstance(solution, MaxMargin)
    return solution


def test_the_bound_on_the_increase_of_p_times_p_mm_is_not_vacuous_and_grows_like_log_t() -> None:
    problem = CORNERS["two-tokens"].problem
    svm = _svm(problem)
    steps = np.array([1e3, 1e6, 1e9, 1e12])
    with in_floats():
        log_beta = log_rate(problem, np.zeros(1)) - problem.log_smoothness
        bound = climb_bound(problem, log_beta, steps)[:, 0]
    assert np.allclose(np.diff(bound)[1:], np.diff(bound)[-1], rtol=1e-2)
    run = gradient_descent(problem, np.zeros(problem.d), steps=1000)
    climbed = float(run.final @ svm.p)
    assert bound[0] <= climbed <= 20 * bound[0]


def test_the_bound_on_the_correlation_with_p_mm_is_not_vacuous() -> None:
    problem = CORNERS["two-tokens"].problem
    svm = _svm(problem)
    start = np.array([[1.0, 2.0]])
    run = gradient_descent(problem, start, steps=1000)
    lengths = np.linalg.norm(np.diff(run.points, axis=0), axis=-1)
    deficit = correlation_deficit(run.norms, lengths, svm.norm * math.log(problem.T - 1))[-1, 0]
    lower = start[0] @ svm.direction + run.norms[-1, 0] - run.norms[0, 0] - deficit
    true = run.points[-1, 0] @ svm.direction
    assert lower <= true
    assert lower / run.norms[-1, 0] > -1


def test_the_correlation_bound_fails_without_its_logarithmic_term() -> None:
    """From the origin with small steps, the run is not straight: the bound holds with its term λ log(…), not
    without.
    """
    problem = CORNERS["margin-1+1e-5"].problem
    svm = _svm(problem)
    run = gradient_descent(problem, np.zeros((1, 2)), steps=500, log_step=-4.0 - problem.log_smoothness)
    lengths = np.linalg.norm(np.diff(run.points, axis=0), axis=-1)
    u, norms = run.points @ svm.direction, run.norms
    lag = svm.norm * math.log(problem.T - 1)
    assert (u >= norms - correlation_deficit(norms, lengths, lag) - 1e-12).all()
    assert (u < norms - correlation_deficit(norms, lengths, 0.0) - 1e-6).any()


def _offset(name: str, norm: float = 1e6) -> tuple[FlowOffset, np.ndarray, float, np.ndarray]:
    """Return the predicted offset, the flow's offset, 1 − cos, and the start; lengths are in units of ‖p_mm‖."""
    given_case = CORNERS[name]
    problem = given_case.problem
    svm = _svm(problem)
    start = given_case.start if given_case.start is not None else np.linspace(-0.7, 0.9, problem.d)
    flow = gradient_flow(problem, start, norm=norm * svm.norm, relative=1e-12)
    assert flow.reached_norm
    offsets = FlowOffset.of(Constraints.of(problem, svm), svm)
    p = flow.final / svm.norm
    return offsets, offsets.across(p), float(flow.one_minus_cosine(svm.direction)[-1]), start / svm.norm


def test_the_flow_offset_is_the_closed_form_plus_the_conserved_part() -> None:
    """All tokens are SVM-neighbours, so the flow keeps the part of p(0) outside the span of the k_opt − k_t, and the
    offset from p_mm is known to 8 digits.
    """
    offsets, z, one_minus_cosine, start = _offset("duplicate-tokens")
    predicted = offsets.across(offsets.q + offsets.free(start))
    np.testing.assert_allclose(z, predicted, atol=1e-8 * (1 + np.linalg.norm(predicted)))
    assert abs(one_minus_cosine - predicted @ predicted / 2e12) < 1e-16
    assert one_minus_cosine < 1e-9


def test_flow_with_a_neighbour_of_dual_zero_drifts_like_log_norm() -> None:
    _, early, _, _ = _offset("zero-dual", 1e3)
    _, late, _, _ = _offset("zero-dual", 1e6)
    drift = float(np.linalg.norm(late) - np.linalg.norm(early))
    # The offset y beside the ray has dy/d log t = e^{−y}, so y = log log t + const.
    assert abs(drift - math.log(1e3)) < 0.05


@pytest.mark.parametrize("name", ["zero-dual", "margin-1+3e-9", "margin-1+1e-5", "far-start"])
def test_the_bound_on_the_offset_from_the_start_holds_and_is_not_absurdly_large(name: str) -> None:
    offsets, z, one_minus_cosine, start = _offset(name)
    bound = offsets.from_start(start, 1e6)
    size = float(np.linalg.norm(z))
    assert size <= bound <= 100 * (1 + size)
    assert one_minus_cosine <= bound**2 / 1e12


SPARSE = Problem(
    [[[0, 0, 0, 0, 0], [-1, 0, 0, -2, -5], [-0.87, 0, 1.49, -1.98, -5], [-1.78, 0, 0, 1.95, -2.34],
      [0.02, -1.85, 0, 1.78, -5], [-1, 0.29, 0, -2, -5]]],
    [[0.0, -1, -1, -1, -1, -1]],
)  # fmt: skip
"""Three of four SVM-neighbours have a positive dual; the fourth differs from the first in a coordinate in which p_mm is
0.
"""
PARTLY = Problem(
    [[[0, 0, 0, 0], [-1, 0, 0, 0], [-1, -1, 0, 0], [-1, 1, 0, 0], [-1, 0.5, 0, -1], [-1, 0, -1, -2]]],
    [[0.0, -1, -1, -1, -1, -1]],
)
"""Three neighbours have linearly dependent k_opt − k_t, and each has a positive dual in some solution; two have
dual 0.
"""


@pytest.mark.parametrize("problem", [SPARSE, PARTLY])
def test_neighbours_of_dual_zero_are_no_counterexample_to_theorem_2(problem: Problem) -> None:
    svm = _svm(problem)
    assert not svm.strictly_complementary
    assert svm.dual_support.sum() == 3
    for seed in range(4):
        outcome = check(statement("theorem-2"), Case(problem, seed=seed).normalise(), REFERENCE)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason
        assert {c.name for c in outcome.claims} >= {*SINGLE, "flow-offset-closed-form"}


RIGHT = FlowOffset.of


@dataclass(frozen=True)
class Elsewhere:
    """A replacement of :meth:`FlowOffset.of` that moves q, the limit of the offset, by ``by`` within the span."""

    by: float

    def of(self, constraints: Constraints, svm: MaxMargin) -> FlowOffset:
        right = RIGHT(constraints, svm)
        return replace(right, q=right.q + self.by * right.tangents[0])


TRIANGLE = Problem([[[0.0, 0], [-1, 1], [-1, -1]]], [[1.0, 0, 0]])


@pytest.mark.parametrize("problem", [PARTLY, TRIANGLE])
def test_a_wrong_limit_of_the_offset_is_falsified(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds allow for the residual of q; with the residual set to 0, a wrong q is noticed."""
    where = "theorems.token_selection.global_paths.theorem_2_global_convergence.FlowOffset.of"
    caught = []
    for by in (1e-3, -1.0):
        with monkeypatch.context() as planted:
            planted.setattr(where, Elsewhere(by).of)
            planted.setattr(FlowOffset, "residual", lambda self, q: 0.0)
            caught.append(falsified("theorem-2", Case(problem, start=np.ones(problem.d)), REFERENCE))
    assert all("flow-offset-closed-form" in names for names in caught), caught


def test_with_several_inputs_the_flow_may_go_to_another_direction_than_p_mm() -> None:
    """For n = 2 (Figure 8), one flow goes to the direction (1, 0), along which the second input selects its worse
    token.
    """
    keys = np.array([[[1.0, 0.0], [0.0, 0.0]], [[-1.5, 0.5], [0.0, 0.0]]])
    problem, start = Problem(keys, np.array([[1.0, 0.0], [1.0, 0.0]])), np.array([20.0, 0.0])
    svm = _svm(problem)
    outcome = check(statement("theorem-2"), Case(problem, start=start).normalise(), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    flow = gradient_flow(problem, start, norm=1e6)
    assert flow.reached_norm
    assert float(flow.one_minus_cosine(np.array([1.0, 0.0]))[-1]) < 1e-9
    assert float(flow.one_minus_cosine(svm.direction)[-1]) > 0.5


def test_a_prompt_that_steps_are_too_short_to_move_is_no_counterexample() -> None:
    """Steps of 1e-15 leave p of norm 51 unchanged in floats, though their exact sum would exceed its rounding."""
    problem = Problem([[[2.0], [3.0]], [[0.0], [1.0]]], [[2.0, 1.9], [0.0, -0.1]], "logistic")
    outcome = check(statement("theorem-2"), Case(problem, seed=1897165503), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
