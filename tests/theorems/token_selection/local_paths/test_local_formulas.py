"""Formulas of the local statements, by hand: the resolution of floats, cones, longest steps, harmful tokens.

A cone with opening μ contains the points with 1 − cos ≤ μ, seen from its tip; ρ is a norm in units of P = ‖p_mm‖, κ and
π the constants of (L3). A row is a difference k_α − k_t of margin m; p' is p minus the tip, ρ' its norm in units of P,
ν' its 1 − cos.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.theorems.token_selection.local_paths.local_problems import HAND_MADE, case, constants_of, nearly_neighbour
from theorems.bounded import value_of
from theorems.core.check import check
from theorems.core.claim import Verdict, at_least
from theorems.core.implementation import REFERENCE
from theorems.curves.cone_points import ConeView, is_resolvable, resolvable_rho, sides
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.local_paths.cone_descent import ConeRun, growth
from theorems.token_selection.local_paths.correlation_constant import HarmfulTokens, correlation_constant
from theorems.token_selection.local_paths.invariant_cone import SAFETY, SLACK, InvariantCone, _better, invariant_cone
from theorems.token_selection.local_paths.lemma_07_local_gradient_condition import (
    LEVELS,
    _levels,
    _violation,
    margins_in_cone,
)
from theorems.token_selection.local_paths.local_constants import Apex, LocalConstants, local_constants
from theorems.token_selection.local_paths.theorem_3_local_convergence import (
    SHORTEST,
    _shorter_step,
    rho_of,
    stays_in_cone,
)

SHORT = case([[[4.0, 0.0], [0.0, 0.0], [2.0, 1.0]]], [[1.0, 0.0, 0.5]], [0])
"""A case with the rows (4, 0) and (2, −1), for which p_mm = (2, −1)/5 has the margins 8/5 and 1."""


def cone_of(example: Case) -> InvariantCone:
    constants = constants_of(example)
    cone = invariant_cone(constants, -example.problem.log_smoothness)
    assert cone is not None
    return cone


def test_a_radius_is_resolved_if_logits_have_six_correct_bits() -> None:
    """The largest ρ has (d + 3) eps · 2ρ max P‖row‖ = 2⁻⁶; a radius counts as resolved if twice the radius is
    below it.
    """
    constants = constants_of(SHORT)
    rho = resolvable_rho(constants)
    assert (2 + 3) * EPS * 2 * rho * constants.reach.max() == pytest.approx(2.0**-6, rel=1e-14)
    assert is_resolvable(constants, 0.45 * rho)
    assert not is_resolvable(constants, 0.55 * rho)


def test_step_growth_adds_up_to_the_logarithm_of_the_factor() -> None:
    """The growth ‖Δ‖/‖p‖ of a step Δ is equal in all steps of even columns; in odd ones it falls like 1/(20 + s)."""
    result = growth(4, math.exp(2.0), 3)
    assert result[:, 0] == pytest.approx(np.full(4, 0.5))
    assert result[:, 1].sum() == pytest.approx(2.0)
    assert result[0, 1] / result[3, 1] == pytest.approx(23 / 20)
    assert (result[:, 2] == result[:, 0]).all()


def test_the_longest_step_solves_its_quadratic() -> None:
    """The equation is μ − ν' + η c − (1 − μ) η²/2 = 0 with c = [1 − (1 − μ)(1 + κ/ρ' − ν')] A, A the step's part along
    p_mm.
    """
    cone = cone_of(SHORT)
    constants, axis, mu = cone.constants, cone.constants.solution.direction, cone.constants.mu
    across = np.array([-axis[1], axis[0]])
    lean = 0.5 * math.sqrt(2 * mu)
    moved = 3 * cone.radius * (math.cos(lean) * axis + math.sin(lean) * across)
    unit = math.cos(0.3) * axis + math.sin(0.3) * across
    length = np.linalg.norm(moved)
    eta = float(cone.longest_step((cone.tip + moved)[None], unit[None])[0]) / SAFETY
    nu = 1 - math.cos(lean)
    c = (1 - (1 - mu) * (1 + cone.kappa * constants.norm / length - nu)) * math.cos(0.3)
    # The tolerance is wide because the cosine of so small an angle loses digits.
    assert mu - nu + eta * c - (1 - mu) * eta**2 / 2 == pytest.approx(0.0, abs=1e-9 * mu)


def leaning(cone: InvariantCone, nu: float) -> np.ndarray:
    """Return a point of the plane whose 1 − cos, seen from the tip of the cone, is ν."""
    axis = cone.constants.solution.direction
    across = np.array([-axis[1], axis[0]])
    lean = 2 * math.asin(math.sqrt(nu / 2))
    return cone.tip + 10 * cone.radius * (math.cos(lean) * axis + math.sin(lean) * across)


@pytest.mark.parametrize(("share", "inside"), [(0.5, True), (0.99, True), (1.0, False), (1.5, False)])
def test_a_cone_contains_no_point_beyond_its_opening(share: float, inside: bool) -> None:
    cone = cone_of(SHORT)
    assert cone.contains(leaning(cone, share * cone.constants.mu)) is inside


def test_in_one_dimension_a_cone_contains_every_point_far_enough_along_p_mm() -> None:
    cone = cone_of(HAND_MADE["one-dimension"])
    assert cone.contains(2 * cone.radius * cone.constants.solution.direction)
    assert not cone.contains(-2 * cone.radius * cone.constants.solution.direction)


def test_starts_are_within_a_quarter_of_the_cone_s_opening() -> None:
    """The least norm of starts is such that a start at a quarter of the opening is as high as the cone's base."""
    cone = cone_of(SHORT)
    mu = cone.constants.mu
    assert cone.start_mu == mu / 4
    assert cone.radius * (1 - mu / 4) == pytest.approx(cone.height * cone.constants.norm, rel=1e-8)


def test_sides_are_unit_vectors_orthogonal_to_p_mm_or_zero() -> None:
    """Sides are the rows' parts orthogonal to p_mm, normalised, or zero for a row parallel to p_mm."""
    constants = constants_of(case([[[2.0**-7, 0.0], [0.0, 0.0], [2.0**-8, 2.0**-9]]], [[1.0, 0.0, 0.5]], [0]))
    result = sides(np.random.default_rng(0), constants, 64)
    lengths = np.linalg.norm(result, axis=1)
    assert lengths == pytest.approx(np.round(lengths), abs=1e-12)
    assert set(np.round(lengths)) == {0.0, 1.0}
    assert np.abs(result @ constants.solution.direction).max() < 1e-9


def test_pi_is_smaller_off_the_axis() -> None:
    """At a point p, π is κ/ρ' − ν'."""
    cone = cone_of(SHORT)
    p = leaning(cone, cone.constants.mu)
    view = ConeView(cone.constants, p[None], REFERENCE, cone.tip)
    result = view.pi(0.75)
    rho = np.linalg.norm(p - cone.tip) / cone.constants.norm
    assert result.value == pytest.approx([0.75 / rho - cone.constants.mu], rel=1e-9)
    assert result.error[0] >= (2 + 16) * EPS * 1.75 / rho


def test_lemma_7_is_checked_at_multiples_of_the_base_radius() -> None:
    constants = constants_of(SHORT)
    assert _levels(constants) == [level * constants.base_rho for level in LEVELS]


def test_the_violation_at_a_point_below_the_radius_is_that_at_the_radius() -> None:
    constants = constants_of(SHORT)
    rho = 2 * constants.base_rho
    worst = _violation(constants, REFERENCE, rho, 1.0)
    axis = constants.solution.direction
    beside = axis + 0.1 * math.sqrt(constants.mu) * np.array([-axis[1], axis[0]])
    on = rho * constants.norm * (1 + 1e-12) * beside / np.linalg.norm(beside)
    assert worst(0.25 * on[None]) == pytest.approx(worst(on[None]), rel=1e-6)


def solution_of(example: Case) -> MaxMargin:
    solution = max_margin(example.problem.exact_keys, example.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    return solution


def test_there_are_no_constants_if_a_neighbour_scores_at_least_as_much_as_alpha() -> None:
    example = nearly_neighbour(0.0)
    assert local_constants(example.problem, solution_of(example)) is None


def test_the_opening_of_the_cone_is_limited_by_a_harmful_token() -> None:
    """Of the rows (1, 0) and (5, 12), the second is harmful with margin 5 and P‖row‖ = 13; √(2μ) is ½·½ over 13."""
    example = case([[[1.0, 0.0], [0.0, 0.0], [-4.0, -12.0]]], [[1.0, 0.0, 2.0]], [0])
    constants = constants_of(example)
    assert constants.harmful.tolist() == [[False, False, True]]
    assert constants.mu == pytest.approx((0.25 / 13) ** 2 / 2, rel=1e-12)


def test_the_base_radius_is_large_enough_for_harmful_tokens() -> None:
    """The base radius satisfies ρ (m − 1 − w) ≥ 1 for harmful tokens, w the change of their margin within the cone."""
    constants = constants_of(nearly_neighbour(0.05))
    room = float(constants.room[constants.harmful].min())
    assert 0 < room < 0.05
    assert constants.base_rho * room >= 1
    assert not constants.is_base(0.99 / room)


def test_harmful_terms_below_the_range_of_floats_still_count() -> None:
    tokens = HarmfulTokens(np.array([-1000.0]), np.array([2.0]), np.array([0.5]), 0.1)
    assert tokens.log_total(3.0) == pytest.approx(math.log(3.0 * 2.0 + 0.5) - 1000)
    assert tokens.log_total(30.0) > tokens.log_total(3.0)


def test_harmful_terms_count_although_their_factors_overflow() -> None:
    """A term of size e^{κ−z} with κ ≈ z ≈ 2000 counts, although neither e^κ nor e^{−z} is a float."""
    duals, weights, none = np.array([0.9995, 0.0005]), np.array([0.0, 2000.0]), np.empty(0)

    def kappa(log_size: float) -> float:
        harmful = HarmfulTokens(np.array([log_size]), np.array([2.0]), np.array([0.5]), 0.1)
        return correlation_constant(duals, weights, weights, none, harmful)

    assert kappa(-800.0) == pytest.approx(1990.4072, rel=1e-6)
    assert kappa(-1.0) > 1992
    assert kappa(2.0) == math.inf


def widen(constants: LocalConstants) -> LocalConstants:
    """Return the constants with a cone a hundred times too wide."""
    return replace(constants, mu=100 * constants.mu)


def test_the_claim_on_margins_falsifies_a_cone_that_is_too_wide() -> None:
    constants = constants_of(SHORT)
    p = constants.solution.p
    lean = np.array([-p[1], p[0]])
    edge = (p + 2 * lean)[None]
    assert margins_in_cone(constants, p[None]).verdict is Verdict.UPHELD
    assert margins_in_cone(widen(constants), edge).verdict is Verdict.FALSIFIED


def index_at(share: int) -> Callable[[Any], int]:
    return lambda strategy: share


def test_a_drawn_shorter_step_is_in_the_units_of_the_given_keys() -> None:
    """The step size is 0.01^{share}/L_p with the smoothness L_p of the keys as given, not of the normalised ones."""
    example = case([[[4.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]], [0])
    assert example.normalise().problem.log_smoothness != example.problem.log_smoothness
    eta = _shorter_step(index_at(32), example).arrays["eta"]
    assert math.log(float(eta)) == pytest.approx(SHORTEST / 2 - example.problem.log_smoothness, rel=1e-12)
    assert "eta" not in _shorter_step(index_at(0), example).arrays


def test_norms_are_measured_in_units_of_the_norm_of_p_mm() -> None:
    cone = cone_of(SHORT)
    assert rho_of(cone, 7 * cone.constants.solution.p) == pytest.approx(7.0)


def test_without_a_cone_theorem_3_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no invariant cone if steps are too long for the range of floats."""
    module = "theorems.token_selection.local_paths.theorem_3_local_convergence"
    monkeypatch.setattr(f"{module}.invariant_cone", lambda constants, log_step: None)
    last = list(statement_named("theorem-3").conclusion(SHORT, REFERENCE))[-1]
    assert (last.name, last.verdict) == ("no-stationary-point", Verdict.INCONCLUSIVE)
    outcome = check(statement_named("theorem-3"), SHORT, REFERENCE)
    assert (outcome.verdict, outcome.error) == (Verdict.INCONCLUSIVE, "")


LONG = case([[[8.0, 4.0], [-4.0, 0.0]]], [[1.0, 0.0]], [0])
KEYS = [[[0.125, 0.0625], [-0.0625, 0.0], [0.03125, 0.0]], [[0.125, 0.0], [0.0, 0.0], [0.0, 0.0625]]]
SMALL = case(KEYS, [[1.0, 0.0, -3.0]] * 2, [0, 0])


@pytest.mark.parametrize("example", [LONG, SMALL])
@pytest.mark.parametrize("log_step", [12.0, 40.0])
def test_a_cone_begins_at_the_least_radius_at_which_steps_stay_inside(example: Case, log_step: float) -> None:
    """At the cone's radius both conditions on the step hold, and at a radius 1.1 % smaller one fails, also for ‖p_mm‖
    far from one.
    """
    constants = constants_of(example)
    apex = Apex(np.zeros(2), np.zeros(constants.good.shape), 0.0)
    cone = _better(constants, apex, log_step, None)
    assert cone is not None
    assert abs(math.log(constants.norm)) > 1

    def excess(rho: float) -> float:
        length = math.log(rho) + math.log(constants.norm)
        upper, top = constants.log_upper(rho), float(constants.bounds(rho).log_u.max())
        first, second = 2 * upper - constants.log_lower(rho) - math.log(2), upper + math.log(2)
        return log_step + top + max(first, second) - math.log(SLACK * constants.mu) - length

    assert excess(cone.height) <= 1e-9
    assert excess(cone.height / 1.011) > 0


def test_the_claim_that_runs_stay_in_the_cone_uses_the_inward_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the boundary, a step Δ changes ⟨p', p̄_mm⟩ − (1 − μ)‖p'‖ by ⟨Δ, p̄_mm − (1 − μ) p'/‖p'‖⟩ to first order."""
    records: list[Any] = []

    def recorder(name: str, form: Any, left: Any, right: Any, **further: Any) -> Any:
        records.append((left, right))
        return at_least(name, form, left, right, **further)

    monkeypatch.setattr("theorems.token_selection.local_paths.theorem_3_local_convergence.at_least", recorder)
    cone = cone_of(SHORT)
    mu, axis = cone.constants.mu, cone.constants.solution.direction
    p = leaning(cone, (1 - SLACK / 2) * mu)
    points, no_step = np.stack([p, p])[:, None], np.full((1, 1), -math.inf)
    run = ConeRun(cone.constants, cone.tip, REFERENCE, points, no_step, "stays-in-cone")
    assert stays_in_cone(cone, run).verdict is Verdict.UPHELD
    [(left, _)] = records
    moved = p - cone.tip
    descent = run.view.descent.value[0]
    due = descent @ (axis - (1 - mu) * moved / np.linalg.norm(moved))
    assert value_of(left)[-1] == pytest.approx(due, rel=1e-6)
