"""Theorem 3: the invariant cone, descent and flow inside it, and faults that the theorem must catch.

A cone has a tip, an opening μ and a least height or radius; p' is p minus the tip, ν' its 1 − cos to p_mm; κ is the
constant of Lemma 7. A harmful token scores at least as much as α, without being a neighbour.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.near_neighbours import without_near_neighbours
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.flow import Flow, gradient_flow
from tests.theorems.token_selection.local_paths.local_problems import (
    HAND_MADE,
    case,
    constants_of,
    nearly_neighbour,
    random_cases,
)
from theorems.bounded import possibly_at_least, value_of
from theorems.core.check import check
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.curves.cone_points import ConeView, cone_points
from theorems.token_selection.local_paths.cone_descent import ConeDescent, growth, longest_steps
from theorems.token_selection.local_paths.cone_flow import along_a_flow
from theorems.token_selection.local_paths.invariant_cone import (
    InvariantCone,
    cone_for_flow,
    flow_is_resolved,
    invariant_cone,
    log_step_of,
    tangent,
    with_cone,
)
from theorems.token_selection.local_paths.theorem_3_local_convergence import (
    FLOW_RATE,
    flow_claims,
    in_the_cone,
    stays_in_cone,
    theorem_3,
)

CASES = random_cases(3, seed=11)


def cone_of(example: Case) -> InvariantCone:
    cone = invariant_cone(constants_of(example), log_step_of(example))
    assert cone is not None
    return cone


def falsified(cone: InvariantCone, example: Case, under_test: Implementation = REFERENCE) -> set[str]:
    result = in_the_cone(cone, under_test, log_step_of(example), example.rng())
    return {claim.name for claim in result if claim.verdict is Verdict.FALSIFIED}


def descend(cone: InvariantCone, starts: np.ndarray, log_step: float, steps: int) -> ConeDescent:  # type: ignore[type-arg]
    return ConeDescent.of(cone.constants, cone.tip, REFERENCE, starts, log_step, steps, "stays-in-cone")


def claims_about_the_flow(cone: InvariantCone, under_test: Implementation, starts: np.ndarray) -> list[Claim]:  # type: ignore[type-arg]
    factor = max(10.0, 2 * math.sqrt(cone.start_mu / 1e-9))
    return list(along_a_flow(cone.constants, under_test, starts, factor, flow_claims(cone), FLOW_RATE))


@given(theorem_3.cases())
@settings(max_examples=4, deadline=None)
def test_theorem_3_is_upheld(made: Case) -> None:
    outcome = check(theorem_3, made, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", HAND_MADE)
def test_theorem_3_is_upheld_on_corner_cases(name: str) -> None:
    outcome = check(theorem_3, HAND_MADE[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    assert {claim.name for claim in outcome.claims} >= {"stays-in-cone", "log-growth", "flow-rate", "limit"}


@pytest.mark.parametrize("made", CASES, ids=lambda made: str(made.seed))
def test_starts_lie_in_the_invariant_cone_which_lies_in_that_of_lemma_7(made: Case) -> None:
    cone = cone_of(made)
    rng, constants = np.random.default_rng(0), cone.constants
    starts = cone_points(rng, constants, cone.radius * np.geomspace(1 + 1e-12, 1e3, 300), cone.start_mu)
    assert all(cone.contains(p) for p in starts)
    # Points on the boundary of the invariant cone have 1 − cos ≤ μ to p_mm.
    side = cone_points(rng, constants, np.ones(300), constants.mu)
    inside = cone.tip + side * cone.radius * 3
    cosines = inside @ constants.solution.direction / np.linalg.norm(inside, axis=1)
    assert (1 - cosines <= constants.mu * (1 + 1e-9)).all()


def test_the_invariant_cone_around_a_moved_tip_begins_earlier() -> None:
    """With its tip at 0 the cone is invariant only from ρ = κ/(1.9 μ) on; with a moved tip, κ and the radius are
    smaller.
    """
    cone = cone_of(HAND_MADE["long-offset"])
    constants = cone.constants
    around_p_mm = constants.kappa(1e9) / (2 * 15 / 16 * constants.mu)
    assert np.linalg.norm(cone.apex.offset) > 0
    assert cone.height < around_p_mm / 3


def test_the_radius_grows_with_the_step_size() -> None:
    constants = constants_of(HAND_MADE["two-tokens"])
    small, large = invariant_cone(constants, 0.0), invariant_cone(constants, 20.0)
    assert small is not None
    assert large is not None
    # Gradients decrease like e^{−0.75ρ}, so an increase of log η by 20 increases ρ by about 20/0.75.
    assert large.height == pytest.approx(small.height + 20 / 0.75, rel=0.15)


def test_at_the_boundary_of_the_cone_the_negative_gradient_points_inside() -> None:
    """Check ⟨−∇L, p̄_mm − (1−μ)p'/‖p'‖⟩ ≥ (μ/16)⟨−∇L, p̄_mm⟩ where ν' ≥ 15μ/16, on random problems."""
    rng, tried = np.random.default_rng(3), 0
    for example in random_cases(10, seed=12):
        cone = cone_of(example)
        mu, axis = cone.constants.mu, cone.constants.solution.direction
        points = cone.tip + cone_points(rng, cone.constants, np.full(500, cone.radius), mu)
        points *= np.maximum(1.0, cone.height * cone.constants.norm / (points @ axis))[:, None]
        view = ConeView(cone.constants, points, REFERENCE, cone.tip)
        near = (view.nu >= 15 / 16 * mu) & (view.nu <= mu)
        inward = np.vecdot(view.descent, mu * view.axis - (1 - mu) * view.deviation)
        assert possibly_at_least(inward, mu / 16 * view.along)[near].all()
        tried += int(near.sum())
    assert tried > 500


def test_increments_of_gradient_descent_survive_underflow() -> None:
    """At norm 1e4 steps have size e^{−thousands}, so p(t) does not change in floats, but sums of increments do."""
    example = nearly_neighbour(0.05)
    cone = cone_of(example)
    start = 50 * cone.radius * cone.constants.solution.direction[None]
    gd = descend(cone, start, 0.0, 200)
    long = longest_steps(
        cone.constants, cone.tip, REFERENCE, start, cone.longest_step, growth(200, 2.0, 1), "stays-in-cone"
    )
    assert (gd.log_sizes < -1000).all()
    assert (gd.points == start).all()
    moved = gd.climb[:, 0]
    assert value_of(moved) == pytest.approx(np.arange(1, 201) * value_of(moved)[0])
    assert np.linalg.norm(long.points[-1, 0]) == pytest.approx(2 * np.linalg.norm(start), rel=0.1)


def test_longer_steps_than_the_proof_allows_leave_the_cone() -> None:
    example = HAND_MADE["duplicate-neighbours"]
    cone = cone_of(example)
    rng = np.random.default_rng(0)
    starts = cone_points(rng, cone.constants, np.full(8, cone.radius), cone.constants.mu)
    claim = stays_in_cone(cone, descend(cone, starts, 200.0, 1))
    assert claim.verdict is Verdict.FALSIFIED


def test_theorem_3_with_a_cone_that_is_too_wide_is_refuted() -> None:
    """If μ is doubled repeatedly at the same radius, the bound of Lemma 7 fails because of the harmful token."""
    example = nearly_neighbour(0.05)
    cone = cone_of(example)
    assert not falsified(cone, example)
    constants, lateral = cone.constants, np.array([[0.0, 1.0]])
    refuted = []
    for doubling in range(13):
        mu = constants.mu * 2**doubling
        point = cone.radius * ((1 - mu) * constants.solution.direction + math.sqrt(mu * (2 - mu)) * lateral)
        view = ConeView(constants, point, REFERENCE, cone.tip)
        left, right = view.pi(cone.kappa) * view.along, view.aside
        refuted.append(bool((left < right)[0]))
    assert not refuted[0]
    assert refuted[-1]


def test_a_cone_that_ignores_the_harmful_token_is_refuted() -> None:
    """The cone is computed as if the harmful token scored less than α; descent does not behave as claimed there."""
    example = nearly_neighbour(0.05)
    harmless = cone_of(nearly_neighbour(0.05, gap=1.0))
    lying = replace(harmless, constants=replace(harmless.constants, problem=example.problem))
    assert {"no-stationary-point", "increments", "norm-grows"} & falsified(lying, example)


def test_the_bound_with_a_smaller_kappa_is_refuted() -> None:
    example = HAND_MADE["not-complementary"]
    cone = cone_of(example)
    points = cone.tip + cone_points(
        np.random.default_rng(4), cone.constants, np.full(4000, cone.radius), cone.constants.mu
    )
    view = ConeView(cone.constants, points, REFERENCE, cone.tip)
    left, right = view.pi(cone.kappa) * view.along, view.aside
    assert possibly_at_least(left, right).all()
    left, right = view.pi(cone.kappa / 4) * view.along, view.aside
    assert (left < right).any()


@pytest.mark.parametrize("name", ["wrong-sign-input", "long-offset", "nearly-neighbour"])
def test_the_proven_angle_of_the_flow_decreases_like_one_over_the_norm(name: str) -> None:
    """Cones with their tips at the flow's offset have so small a κ that the angle is O(1/‖p‖)."""
    cone = cone_of(HAND_MADE[name])
    start = cone_points(np.random.default_rng(1), cone.constants, np.array([2 * cone.radius]), cone.start_mu)[0]
    norms = 2 * cone.radius * np.array([1e2, 1e3, 1e4])
    angles = []
    for norm in norms:
        around = cone_for_flow(cone.constants, start, norm)
        assert around is not None
        angles.append(around.flow_angle(start, norm))
    assert angles[0] > angles[1] > angles[2]
    assert angles[2] < angles[0] / 5
    assert angles[0] < tangent(cone.constants.mu)


def test_a_user_s_start_is_used_if_it_is_in_the_cone_and_otherwise_not_applicable() -> None:
    example = with_cone(HAND_MADE["wrong-sign-input"])
    radius = float(example.arrays["cone_radius"])
    direction = constants_of(example).solution.direction
    inside = example.replace(start=direction * radius * 1.5)
    assert ASSUMPTIONS["in-cone"].check(inside).holds is True
    assert check(theorem_3, inside, REFERENCE).verdict is Verdict.UPHELD
    outside = example.replace(start=direction * radius * 0.5)
    outcome = check(theorem_3, outside, REFERENCE)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "in-cone" in outcome.reason
    assert "below R" in outcome.reason
    against = example.replace(start=-direction * radius * 2)
    assert check(theorem_3, against, REFERENCE).verdict is Verdict.NOT_APPLICABLE


def test_a_start_beyond_float64_is_inconclusive() -> None:
    example = with_cone(HAND_MADE["wrong-sign-input"])
    far = example.replace(start=constants_of(example).solution.direction * 1e30)
    outcome = check(theorem_3, far, REFERENCE)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "resolves no logits at the given start" in outcome.reason


def test_the_cone_is_stored_in_the_units_of_the_given_keys() -> None:
    """If keys are multiplied by 2^40, μ stays the same and R becomes exactly 2^40 times smaller."""
    example = HAND_MADE["wrong-sign-input"]
    scaled = example.replace(problem=example.problem.with_keys_scaled(2.0**40))
    first, second = with_cone(example), with_cone(scaled)
    assert float(first.arrays["cone_mu"]) == float(second.arrays["cone_mu"])
    assert float(first.arrays["cone_radius"]) == float(second.arrays["cone_radius"]) * 2.0**40


def test_theorem_3_is_checked_for_each_locally_optimal_choice_of_tokens() -> None:
    example = case([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]], [[1.0, 2.0, 0.0]], [0]).replace(alpha=None)
    result = [chosen.chosen_tokens.tolist() for chosen in theorem_3.from_data(example)]
    assert [1] in result
    assert all("cone_mu" in chosen.arrays for chosen in theorem_3.from_data(example))


def test_a_given_step_size_is_used_unless_it_is_too_large() -> None:
    example = HAND_MADE["two-tokens"]
    eta = math.exp(-example.problem.log_smoothness - 3)
    given_step = example.replace(arrays=MappingProxyType({"eta": np.array(eta)}))
    assert log_step_of(given_step) == pytest.approx(log_step_of(example) - 3)
    assert check(theorem_3, given_step, REFERENCE).verdict is Verdict.UPHELD
    too_large = example.replace(arrays=MappingProxyType({"eta": np.array(100 * eta)}))
    assert check(theorem_3, too_large, REFERENCE).verdict is Verdict.NOT_APPLICABLE


def test_cases_with_tokens_too_near_to_neighbours_are_changed_so_that_floats_resolve_them() -> None:
    example = nearly_neighbour(2.0**-60)
    outcome = check(theorem_3, example, REFERENCE)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "no longer resolves" in outcome.reason
    assert not flow_is_resolved(example)
    changed = without_near_neighbours(example)
    before, after = max_margin(example.problem.keys, example.chosen_tokens), constants_of(changed).solution
    assert isinstance(before, MaxMargin)
    assert before.exact.p == after.exact.p
    assert (before.neighbours == after.neighbours).all()
    assert after.margins[0, 2] == pytest.approx(2.0)
    assert flow_is_resolved(changed)


def test_the_tolerance_of_the_flow_stays_small_in_many_dimensions() -> None:
    """For (n, T, d) = (20, 20, 50) the allowance for the solver's error must stay far below the bound itself."""
    rng = np.random.default_rng(0)
    keys, scores = 0.3 * rng.normal(size=(20, 20, 50)), np.zeros((20, 20))
    keys[:, 0, 0] += 3
    scores[:, 0] = 1
    large = Case(Problem(keys, scores, loss_named("logistic")), alpha=np.zeros(20, dtype=np.int64))
    cone = cone_of(large)
    starts = cone_points(rng, cone.constants, np.full(1, 1.01 * cone.radius), cone.start_mu)
    claims = {claim.name: claim for claim in claims_about_the_flow(cone, REFERENCE, starts)}
    assert {claim.verdict for claim in claims.values()} == {Verdict.UPHELD}
    assert claims["flow-rate"].tolerance < 1e-4
    assert claims["limit"].tolerance < 1e-6


def test_a_flow_whose_solver_is_too_coarse_is_undecided() -> None:
    cone = cone_of(HAND_MADE["long-offset"])

    def coarse(problem: Problem, start: np.ndarray, **options: object) -> Flow:
        return replace(gradient_flow(problem, start, **options), evaluations=10**12)  # type: ignore[arg-type]

    starts = cone_points(np.random.default_rng(0), cone.constants, np.full(1, 1.01 * cone.radius), cone.start_mu)
    claims = claims_about_the_flow(cone, REFERENCE.replace("coarse", {gradient_flow: coarse}), starts)
    assert [claim.verdict for claim in claims] == [Verdict.INCONCLUSIVE]
    assert "times the claimed bound" in claims[0].undecided
