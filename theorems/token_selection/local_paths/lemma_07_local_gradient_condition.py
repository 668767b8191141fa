"""Lemma 7: in a cone around a locally optimal p_mm, −∇L points outwards, hardly more along p than along p_mm.

Main results, with explicit constants: there is no stationary point in the cone (L1), −∇L is of the order of the softmax
weight outside α (L2), and its component along p exceeds that along p_mm by a small factor at most (L3).

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from generators.case import Case
from generators.chosen_tokens import locally_optimal_choices
from generators.near_neighbours import without_near_neighbours
from generators.numbers import MODERATE
from generators.problems import cases
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.bounded import exact, in_floats, with_rounding
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided, at_least
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.kernel_use import FAR
from theorems.core.points import Violation, climb
from theorems.core.statement import statement
from theorems.core.svm_certificate import LOCAL_OPTIMALITY, SVM_IS_OPTIMAL, local_optimality_claim
from theorems.curves.cone_points import NO_STATIONARY_POINT, ConeView, cone_points, is_resolvable
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.local_paths.local_constants import LocalConstants, local_constants, resolution_failure

MARGINS_IN_CONE = sharper("margins-in-cone")
LOWER_BOUND = stated_claim("lower-bound")
UPPER_BOUND = stated_claim("upper-bound")
SATURATION = sharper("saturation")
CORRELATION = sharper("correlation")
RADIUS_OF_PI = stated_claim("radius-of-pi")

ASSUMPTIONS = ("well-behaved-loss", "separable", "locally-optimal")

LEVELS = (1.0, 3.0, 30.0)
"""The least radii of the points, in multiples of the base radius; the constants are computed for each least radius."""

POINTS = 48
"""The number of points per level (least radius) before the local search for the worst points."""

PIS = (1.0, 1 / 16)
"""The values of π for which L3 is tried from the radius R_π on; the cone's opening μ is a further value."""


def _cases() -> SearchStrategy[Case]:
    strategy = cases(assumptions=ASSUMPTIONS, large=MODERATE)
    return strategy.map(lambda case: case if resolves_cone(case) else without_near_neighbours(case)).filter(
        resolves_cone
    )


@statement(
    "lemma-7",
    "Local gradient condition",
    source="Appendix B.1, Lemma 7",
    claims=(
        SVM_IS_OPTIMAL,
        LOCAL_OPTIMALITY,
        MARGINS_IN_CONE,
        NO_STATIONARY_POINT,
        LOWER_BOUND,
        UPPER_BOUND,
        SATURATION,
        CORRELATION,
        RADIUS_OF_PI,
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=locally_optimal_choices,
    kernel=FAR,
)
def lemma_7(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and α be locally optimal, p_mm = p_mm(α).

    There are μ and R such that in C_{μ,R}(p_mm):

        L1. no point is stationary;
        L2. for all q in the cone, C⁻ max_i(1 − s_iα_i) ≤ −⟨∇L(p), q/‖q‖⟩ ≤ C⁺ max_i(1 − s_iα_i);
        L3. for every π > 0 there is R_π such that ‖p‖ ≥ R_π implies
            ⟨∇L(p), p/‖p‖⟩ ≥ (1 + π) ⟨∇L(p), p_mm/‖p_mm‖⟩.

    Effective form. :mod:`.local_constants` defines all symbols and derives, using only the data, μ (the paper's
    (ε/A)²/8 or more), the base radius R, C⁻, C⁺, the explicit lower bound −⟨∇L(p), q̄⟩ ≥ C e^{−⟨p, p_mm⟩/‖p_mm‖²} behind
    L1, and the bound max_i(1 − s_iα_i) ≤ max_i Σ_t e^{−ρ(m_it − w_it)}, ρ = ‖p‖/‖p_mm‖; and κ with

        −⟨∇L(p), p̄⟩ ≤ (1 + κ/ρ − ν)(−⟨∇L(p), p̄_mm⟩),    ν = 1 − cos(p, p_mm),

    from which R_π = ‖p_mm‖ κ/π. Each inequality is tried at the base radius and beyond, at and near the boundary of the
    cone, on its axis, at distances of a few 1/‖k‖ from the axis, where L3 is almost an equality, and at points found by
    local search. The property that defines the cone, margins within ε of those of p_mm, is checked, too; that p_mm
    solves ATT-SVM is checked exactly.
    """
    problem = case.problem
    solution = yield from certify(problem, case.chosen_tokens, under_test)
    yield from premises(local_optimality_claim(problem, case.chosen_tokens, solution, under_test))
    constants = local_constants(problem, solution)
    if constants is None or not is_resolvable(constants, constants.base_rho):
        raise Undecided(NO_STATIONARY_POINT, resolution_failure(constants), Form.EFFECTIVE)
    yield from in_the_cone(constants, under_test, case.rng())


def in_the_cone(constants: LocalConstants, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """Yield the claims that follow from the constants; tests also pass wrong constants."""
    rhos = _levels(constants)
    if not rhos:
        raise Undecided(NO_STATIONARY_POINT, resolution_failure(constants), Form.EFFECTIVE)
    kappas = [constants.kappa(rho) for rho in rhos]
    batches = [_points(constants, under_test, rho, kappa, rng) for rho, kappa in zip(rhos, kappas, strict=True)]
    at = ConeView(constants, np.concatenate(batches), under_test, np.zeros(constants.problem.d))
    level = np.repeat(np.arange(len(rhos)), [len(points) for points in batches])
    yield margins_in_cone(constants, at.points)
    yield from _first_and_second(constants, at, rhos, level, rng)

    # L3 with ⟨−∇L, p̄_mm⟩ subtracted: (κ/ρ − ν)⟨−∇L, p̄_mm⟩ ≥ ⟨−∇L, p̄ − p̄_mm⟩.
    kappa = np.array(kappas)[level]
    finite = kappa < math.inf
    left, right = at.pi(np.where(finite, kappa, 0.0)) * at.along, at.aside
    yield at_least(CORRELATION, Form.EFFECTIVE, left[finite], right[finite])

    at, pi = _from_radius_of_pi(constants, under_test, rng)
    yield at_least(RADIUS_OF_PI, Form.EFFECTIVE, pi * at.along, at.aside)


def margins_in_cone(constants: LocalConstants, points: Float64[np.ndarray, "m d"]) -> Claim:
    """Claim that in the cone margins of p̃ = p‖p_mm‖/‖p‖ differ from those of p_mm, m_it, by small changes w_it at most.

    The change w_it is small enough if w_it ≤ ¼ for good tokens, which score below α_i, and w_it ≤ (m_it − 1)/4 for the
    others, the harmful ones. One claim contains both conditions, for the worst token of each point.
    """
    constants, others = constants.carrying, constants.others
    p, p_mm = exact(points), with_rounding(constants.solution.p)
    tilted = norm(p_mm) * p / norm(p, axis=1)[:, None] - p_mm
    beyond = np.where(constants.harmful, constants.beyond / 4, 0.25)[others]
    allowed = np.minimum(constants.tilt[others], beyond)
    return at_least(MARGINS_IN_CONE, Form.EFFECTIVE, allowed, np.abs(tilted @ constants.rows[others].T))


def _first_and_second(
    constants: LocalConstants, at: ConeView, rhos: list[float], level: Int64[np.ndarray, "m"], rng: np.random.Generator
) -> Iterator[Claim]:
    """Yield the claims of L1, of L2 and of the bound of 1 − s_iα_i at points p.

    The q of L2 are a random vector of the cone, p, and p mirrored at p_mm. ``rhos`` are the least radii in units of
    ‖p_mm‖, and ``level`` is the index of each point's least radius.
    """
    axis, p = constants.solution.direction, at.points
    q = np.stack([cone_points(rng, constants, np.ones(len(p)), constants.mu), p, 2 * (p @ axis)[:, None] * axis - p])
    towards: Any = np.vecdot(at.descent, q) / norm(exact(q), axis=-1)
    constants = constants.carrying
    log_C, log_lower, log_upper = (
        np.stack([log_bound(rho) for rho in rhos])[level]
        for log_bound in (partial(constants.log_descent, axis=True), constants.log_lower, constants.log_upper)
    )
    log_missed = at.log_missed

    # ⟨−∇L, p̄_mm⟩ ≥ C e^{−ζ}, ζ = ⟨p, p_mm⟩/‖p_mm‖²; C⁻ max(1 − s_iα) ≤ ⟨−∇L, q̄⟩ ≤ ‖∇L‖ ≤ C⁺ max(1 − s_iα).
    yield at_least(NO_STATIONARY_POINT, Form.EFFECTIVE, at.along, at.in_units(log_C - at.axial))
    yield at_least(LOWER_BOUND, Form.EFFECTIVE, towards, at.in_units(log_lower + log_missed))
    yield at_least(UPPER_BOUND, Form.EFFECTIVE, at.in_units(log_upper + log_missed), norm(at.descent, axis=1))
    yield at_least(SATURATION, Form.EFFECTIVE, log_saturation(constants, at.rho), log_missed)


def log_saturation(constants: LocalConstants, rho: Numbers) -> Numbers:
    """Return log max_i Σ_t e^{−ρ(m_it − w_it)}, the proven bound of log max_i (1 − s_iα_i), at each ρ, (m,)."""
    exponents = np.where(constants.others, -rho[:, None, None] * constants.lowest, -np.inf)
    return np.max(np.logaddexp.reduce(exponents, axis=2), axis=1)


def resolves_cone(case: Case) -> bool:
    """Return whether float64 resolves logits where the lemma's cone begins."""
    normal = case.normalise()
    solution = max_margin(normal.problem.exact_keys, normal.chosen_tokens)
    if isinstance(solution, Infeasible):
        return False
    constants = local_constants(normal.problem, solution)
    return constants is not None and is_resolvable(constants, constants.base_rho)


def _levels(constants: LocalConstants) -> list[float]:
    """Return the least radii ρ of the points, multiples of the base radius ρ_0, that float64 resolves."""
    return [level * constants.base_rho for level in LEVELS if is_resolvable(constants, level * constants.base_rho)]


def _points(
    constants: LocalConstants, under_test: Implementation, rho: float, kappa: float, rng: np.random.Generator
) -> Float64[np.ndarray, "m d"]:
    """Return points of the cone with ‖p‖ ≥ ρ‖p_mm‖; a local search moves some to where inequalities are tightest."""
    norms = constants.norm * rho * np.exp(np.abs(rng.standard_normal(POINTS)) * rng.integers(0, 2, POINTS))
    points = cone_points(rng, constants, norms * (1 + 1e-12), constants.mu)
    points = climb(rng, points, _violation(constants, under_test, rho, kappa), rounds=3)
    return _inside(constants, points, rho)


def _inside(constants: LocalConstants, points: Float64[np.ndarray, "m d"], rho: float) -> Float64[np.ndarray, "k d"]:
    """Return the points that certainly lie in the cone beyond the radius ρ‖p_mm‖, and whose logits float64 resolves."""
    norms = norm(points, axis=1)
    with in_floats():
        near = ConeView(constants, points, REFERENCE, np.zeros(constants.problem.d)).nu <= constants.mu
    resolved = is_resolvable(constants, 1.0) & (norms <= 1e4 * rho * constants.norm)
    return np.asarray(points[near & resolved & (norms >= rho * constants.norm)])


def _violation(constants: LocalConstants, under_test: Implementation, rho: float, kappa: float) -> Violation:
    """Return the function that maps points to the amount by which L3 is violated, or L1 if κ is infinite."""
    tip = np.zeros(constants.problem.d)

    def worst(points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        norms = norm(points, axis=1)
        factor = np.maximum(norms, rho * constants.norm * (1 + 1e-12)) / norms
        with in_floats():
            view = ConeView(constants, points * factor[:, None], under_test, tip)
            left, right = (view.pi(kappa) * view.along, view.aside) if kappa < math.inf else (view.along, 0.0)
            unit = max(kappa, 1e-9) / view.rho if kappa < math.inf else 1.0
            size = np.maximum(np.abs(view.along), 1e-300)
            inside = (view.nu <= constants.mu * (1 - 1e-6)) & (norms <= 1e4 * rho * constants.norm)
            return np.where(inside, (right - left) / (unit * size), -np.inf)

    return worst


def _from_radius_of_pi(
    constants: LocalConstants, under_test: Implementation, rng: np.random.Generator
) -> tuple[ConeView, Float64[np.ndarray, "m"]]:
    """Return points with ‖p‖ ≥ R_π, the radius from which L3 holds with π, for several π, and the π of each point."""
    pairs = [(pi, constants.radius(pi)) for pi in (*PIS, constants.mu)]
    pis, radii = np.array([x for x in pairs if is_resolvable(constants, x[1] / constants.norm)]).reshape(-1, 2).T
    norms = (radii[:, None] * (1 + 1e-12) * np.exp(np.linspace(0, 2, POINTS))).ravel()
    points = cone_points(rng, constants, norms, constants.mu)
    view = ConeView(constants, points, under_test, np.zeros(constants.problem.d))
    return view, np.repeat(pis, POINTS)
