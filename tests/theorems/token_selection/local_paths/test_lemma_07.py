"""Lemma 7 and its constants: right, not vacuous, and falsified by planted faults.

The cone is {1 − cos(p, p_mm) ≤ μ, ‖p‖ ≥ R}; its radius R is ρ‖p_mm‖. (L1) bounds the gradient in the cone, (L3) says
how nearly it points along p_mm, with the constant κ. P is ‖p_mm‖, g a difference k_α − k_t, m its margin g·p_mm. A
harmful token scores at least as much as α, without being a neighbour.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.margin_excess import margins_beyond_one
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.theorems.token_selection.faults import FAULTS
from tests.theorems.token_selection.local_paths.local_problems import (
    HAND_MADE,
    case,
    constants_of,
    nearly_neighbour,
    random_cases,
)
from theorems.bounded import in_floats, possibly_at_least
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.curves.cone_points import ConeView, cone_points, is_resolvable, sides
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.local_paths.correlation_constant import HarmfulTokens, correlation_constant
from theorems.token_selection.local_paths.lemma_07_local_gradient_condition import in_the_cone, lemma_7
from theorems.token_selection.local_paths.local_constants import LocalConstants

NO_HARM = HarmfulTokens(np.empty(0), np.empty(0), np.empty(0), 0.0)


def falsified(constants: LocalConstants, under_test: Implementation = REFERENCE, seed: int = 0) -> set[str]:
    made = in_the_cone(constants, under_test, np.random.default_rng(seed))
    return {claim.name for claim in made if claim.verdict is Verdict.FALSIFIED}


@given(lemma_7.cases())
@settings(max_examples=10, deadline=None)
def test_lemma_7_is_upheld(made: Case) -> None:
    outcome = check(lemma_7, made, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", HAND_MADE)
def test_lemma_7_is_upheld_on_corner_cases(name: str) -> None:
    outcome = check(lemma_7, HAND_MADE[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_an_svm_solver_that_reports_infeasibility_without_proof_is_refuted() -> None:
    outcome = check(lemma_7, HAND_MADE["two-tokens"], FAULTS["svm-always-infeasible"])
    assert outcome.verdict is Verdict.FALSIFIED


def test_lemma_7_does_not_apply_to_alpha_that_is_not_locally_optimal() -> None:
    example = case([[[1.0, 0.0], [0.0, 0.0]]], [[0.0, 1.0]], [0])
    outcome = check(lemma_7, example, REFERENCE)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "locally-optimal" in outcome.reason


def test_the_constants_of_lemma_7_for_two_tokens_are_those_found_by_hand() -> None:
    """P‖g‖ = 1, so A = ½, ε = ¼ and μ = (ε/A)²/8 = 1/32; the gradient is parallel to p_mm, so κ = 0."""
    constants = constants_of(HAND_MADE["two-tokens"])
    assert pytest.approx(0.5, rel=1e-15) == constants.A
    assert constants.delta == math.inf
    assert constants.epsilon == 0.25
    assert constants.mu == pytest.approx(1 / 32, rel=1e-14)
    assert constants.kappa(10.0) == pytest.approx(0.0, abs=1e-15)
    # Condition (a) of the statement is e^{−ρ(m − w)} ≤ ½, with m = 1 and w = ¼.
    assert constants.base_rho == pytest.approx(math.log(2) / 0.75, rel=0.011)


def test_delta_depends_on_harmful_tokens_only() -> None:
    near, good = constants_of(nearly_neighbour(0.05)), constants_of(nearly_neighbour(0.05, gap=1.0))
    assert near.delta == pytest.approx(0.025)
    assert near.epsilon == pytest.approx(0.0125)
    assert good.delta == math.inf
    assert good.mu > 100 * near.mu
    assert near.base_rho > 3 * good.base_rho


@pytest.mark.parametrize("made", random_cases(40, seed=1), ids=lambda made: str(made.seed))
def test_mu_is_at_least_that_of_the_paper(made: Case) -> None:
    constants = constants_of(made)
    assert constants.mu >= (constants.epsilon / constants.A) ** 2 / 8 * (1 - 1e-12)


def test_margins_beyond_one_are_known_exactly_where_floats_round_them_to_one() -> None:
    example = nearly_neighbour(2.0**-70)
    solution = max_margin(example.problem.keys, example.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    assert solution.margins[0, 2] == 1.0
    assert not solution.neighbours[0, 2]
    assert margins_beyond_one(solution)[0, 2] == 2.0**-70
    outcome = check(lemma_7, example, REFERENCE)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "no longer resolves" in outcome.reason


def test_the_gradient_of_an_input_without_neighbours_is_outweighed() -> None:
    example = HAND_MADE["wrong-sign-input"]
    constants = constants_of(example)
    assert not constants.solution.neighbours[1].any()
    p = constants.base_radius * constants.solution.direction[None]
    axis = constants.solution.direction
    problem = example.problem
    alone = Problem(problem.keys[1:], problem.scores[1:], problem.loss)
    own = scaled_gradient(alone.keys, alone.scores, alone.loss, p).direction @ axis
    both = scaled_gradient(problem.keys, problem.scores, problem.loss, p).direction @ axis
    assert own[0] > 0 > both[0]


def test_kappa_vanishes_where_weights_are_proportional_to_duals() -> None:
    duals = np.array([0.5, 0.3, 0.2])
    log_weights = np.log(duals) + 3.0
    assert correlation_constant(duals, log_weights, log_weights, np.empty(0), NO_HARM) < 1e-6
    uneven = log_weights + np.array([0.0, 2.0, -1.0])
    assert correlation_constant(duals, uneven, uneven, np.empty(0), NO_HARM) > 0.3


def test_kappa_does_not_change_with_the_unit_of_the_weights() -> None:
    duals, low = np.array([0.7, 0.3]), np.array([0.0, 1.0])
    harmful = HarmfulTokens(np.array([-9.0]), np.array([2.0]), np.array([0.5]), 0.1)
    shifted = HarmfulTokens(harmful.log_size + 40, harmful.margins, harmful.tilt, harmful.opening)
    first = correlation_constant(duals, low, low + 0.1, np.array([-1.0]), harmful)
    second = correlation_constant(duals, low + 40, low + 40.1, np.array([39.0]), shifted)
    assert first == pytest.approx(second, rel=1e-9)


def test_no_smaller_kappa_satisfies_its_inequality() -> None:
    """κ is the least number with Σ ω e^{−y}(κ − y) ≥ 0 for all y with Σ λ̂y = 0, for weights ω and normalised
    duals λ̂.
    """
    duals, weights = np.array([0.6, 0.4]), np.array([1.0, 5.0])
    kappa = correlation_constant(duals, np.log(weights), np.log(weights), np.empty(0), NO_HARM)
    first = np.linspace(-8, 8, 400_001)
    y = np.stack([first, -first * duals[0] / duals[1]], axis=1)
    needed = (np.exp(-y) * y) @ weights / (np.exp(-y) @ weights)
    assert needed.max() <= kappa * (1 + 1e-9)
    assert needed.max() >= kappa * (1 - 1e-4)


@pytest.mark.parametrize("made", random_cases(12, seed=2), ids=lambda made: str(made.seed))
def test_kappa_decreases_with_the_radius_and_radius_inverts_pi(made: Case) -> None:
    constants = constants_of(made)
    rhos = constants.base_rho * np.geomspace(1, 1e4, 12)
    kappas = [constants.kappa(rho) for rho in rhos]
    assert all(b <= a * (1 + 1e-3) + 1e-12 for a, b in pairwise(kappas))
    assert all(constants.is_base(rho) for rho in rhos)
    if constants.base_rho > 1e-3:
        assert not constants.is_base(constants.base_rho / 1.02)
    for pi in (1.0, 1e-2, constants.mu):
        radius = constants.radius(pi)
        assert constants.pi(radius) <= pi
        if radius > 1.1 * constants.base_radius:
            assert constants.pi(radius / 1.05) > pi


def test_l3_holds_at_60000_random_points() -> None:
    """The points are in the cones of 40 random problems at three radii, a third of them on the boundary."""
    tried = 0
    rng = np.random.default_rng(5)
    for example in random_cases(40, seed=4):
        constants = constants_of(example)
        for level in (1.0, 2.0, 20.0):
            rho = level * constants.base_rho
            if not is_resolvable(constants, rho) or not constants.kappa(rho) < math.inf:
                continue
            points = cone_points(rng, constants, np.full(500, rho * constants.norm * (1 + 1e-12)), constants.mu)
            view = _view(constants, points)
            left, right = view.pi(constants.kappa(rho)) * view.along, view.aside
            assert possibly_at_least(left, right).all()
            tried += len(points)
    assert tried >= 50_000


def _view(constants: LocalConstants, points: np.ndarray) -> ConeView:  # type: ignore[type-arg]
    return ConeView(constants, points, REFERENCE, np.zeros(constants.problem.d))


@pytest.mark.parametrize("made", random_cases(5, seed=6), ids=lambda made: str(made.seed))
def test_l3_holds_at_the_point_of_least_slack_on_the_cone_s_base(made: Case) -> None:
    """Minimise the slack of (L3) over the points of the cone with ‖p‖ = R, from the worst of many starting points."""
    constants = constants_of(made)
    rho, axis, rng = constants.base_rho, constants.solution.direction, np.random.default_rng(0)
    kappa, largest = constants.kappa(rho), math.sqrt(2 * constants.mu * (1 - 1e-6))
    side = sides(rng, constants, 1)[0]
    if not side.any():
        pytest.skip("d = 1 has no direction beside p_mm")

    def point(lateral: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        z = lateral - (lateral @ axis) * axis
        z = z * min(1.0, largest / max(float(np.linalg.norm(z)), 1e-300))
        raw = axis + z
        return np.asarray(rho * constants.norm * raw / np.linalg.norm(raw))

    def slack(lateral: np.ndarray) -> float:  # type: ignore[type-arg]
        with in_floats():
            view = _view(constants, point(lateral)[None])
            left, right = view.pi(kappa) * view.along, view.aside
            return float((left - right)[0] / np.linalg.norm(view.descent[0]))

    starts = [scale * largest * s for s in sides(rng, constants, 12) for scale in (1.0, 0.1)]
    best = min(starts, key=slack)
    result = minimize(slack, best, method="Nelder-Mead", options={"maxiter": 400, "xatol": 1e-9, "fatol": 1e-14})
    assert result.fun >= -1e-12


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_l3_with_a_smaller_kappa_is_refuted(share: float) -> None:
    """With 0.9 κ, (L3) fails on many problems."""
    refuted, rng = 0, np.random.default_rng(8)
    for example in random_cases(30, seed=7):
        constants = constants_of(example)
        rho = 8 * constants.base_rho
        kappa = constants.kappa(rho)
        if not is_resolvable(constants, rho) or not 1e-3 < kappa < math.inf:
            continue
        points = cone_points(rng, constants, np.full(4000, rho * constants.norm * (1 + 1e-12)), constants.mu)
        view = _view(constants, points)
        left, right = view.pi(share * kappa) * view.along, view.aside
        refuted += bool((left < right).any())
    assert refuted >= 3


def test_lemma_7_with_a_cone_that_is_too_wide_is_refuted() -> None:
    constants = constants_of(nearly_neighbour(0.05))
    assert not falsified(constants)
    wider = replace(constants, mu=4 * constants.mu)
    assert "margins-in-cone" in falsified(wider)
    wide = replace(constants, mu=64 * constants.mu)
    # At the boundary of a cone 64 times wider, the gradient moves p towards the harmful token.
    points = cone_points(np.random.default_rng(1), wide, np.full(300, constants.base_radius * 4), wide.mu)
    view = _view(wide, points)
    assert (view.descent @ view.axis < 0).any()


def test_constants_that_ignore_harmful_tokens_are_refuted() -> None:
    """With the cone and radius for a harmless token in place of the harmful one, (L1) fails."""
    constants = constants_of(nearly_neighbour(0.05))
    harmless = constants_of(nearly_neighbour(0.05, gap=1.0))
    points = cone_points(np.random.default_rng(2), harmless, np.full(300, harmless.base_radius), harmless.mu)
    view = _view(constants, points)
    assert (view.descent @ view.axis < 0).any()
    assert {"no-stationary-point", "lower-bound"} & falsified(
        LocalConstants(constants.problem, constants.solution, harmless.mu, harmless.harmful)
    )


def test_lemma_7_from_a_radius_that_is_too_small_is_refuted() -> None:
    """At an eighth of the base radius, (L1) fails because of a harmful token with margin near 1."""

    class Early(LocalConstants):
        base_rho = constants_of(nearly_neighbour(0.05)).base_rho / 8  # type: ignore[assignment]

        def _harm_ratio(self, rho: float, bounds: object) -> float:
            return 0.0

    constants = constants_of(nearly_neighbour(0.05))
    early = Early(constants.problem, constants.solution, constants.mu, constants.harmful)
    assert falsified(early) & {"no-stationary-point", "lower-bound", "correlation"}


def test_a_gradient_with_negated_scores_is_refuted() -> None:
    """The gradient under test negates the scores, for which α is not locally optimal."""
    lies = REFERENCE.replace(
        "negated-scores", {scaled_gradient: lambda keys, scores, loss, p: scaled_gradient(keys, -scores, loss, p)}
    )
    result = falsified(constants_of(nearly_neighbour(0.05)), lies)
    assert {"no-stationary-point", "lower-bound", "correlation"} <= result


def test_kappa_where_weights_differ_beyond_float64() -> None:
    """With equal duals κ is about half the range of the weights' logarithms, also where weights overflow floats."""
    none = np.empty(0)
    for spread in (1e2, 1e4, 1e5):
        weights = np.array([0.0, spread])
        kappa = correlation_constant(np.array([0.5, 0.5]), weights, weights, none, NO_HARM)
        assert 0.4 * spread < kappa < spread


@pytest.mark.parametrize("id", ["lemma-7", "theorem-3"])
def test_scores_of_a_hundred_million_are_no_false_alarm(id: str) -> None:
    """Slopes |ℓ'| of e^{−10⁸} occur beside slopes of order one, so bounds underflow."""
    rng = np.random.default_rng(1)
    X, Y = 1e8 * rng.normal(size=(3, 4, 3)), np.array([1.0, -1.0, 1.0])
    problem = Problem(X, np.einsum("n,ntd,d->nt", Y, X, np.array([1.0, 0.5, -0.3])))
    statement = statement_named(id)
    verdicts = {check(statement, case, REFERENCE).verdict for case in statement.from_data(Case(problem))}
    assert Verdict.FALSIFIED not in verdicts
    assert verdicts - {Verdict.NOT_APPLICABLE}
