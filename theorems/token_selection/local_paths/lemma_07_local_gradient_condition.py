"""Lemma 7: around a locally optimal direction the gradient pushes outward, and no direction much more than p_mm.

Main results: no stationary point (L1), bounds of the order of the unselected mass (L2), gradient correlation (L3),
all with explicit constants.

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
from generators.numbers import MODERATE
from generators.problems import cases
from theorems.bounded import exact, in_floats
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided, at_least
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import FAR
from theorems.core.points import Violation, climb
from theorems.core.statement import always, statement
from theorems.core.svm_certificate import local_optimality_claim
from theorems.token_selection.local_paths.chosen_tokens import locally_optimal_choices
from theorems.token_selection.local_paths.cone_points import (
    ConeView,
    cone_points,
    is_resolvable,
    log_saturation,
)
from theorems.token_selection.local_paths.local_cases import resolves_cone, without_near_neighbours
from theorems.token_selection.local_paths.local_constants import LocalConstants, local_constants
from theorems.token_selection.local_paths.margin_claims import margins_in_cone

ASSUMPTIONS = ("well-behaved-loss", "separable", "locally-optimal")

LEVELS = (1.0, 3.0, 30.0)
"""Radii of the points, in multiples of the base radius; each level has its own constants."""

POINTS = 48
"""Points per level, before the adversarial search."""

PIS = (1.0, 1 / 16)
"""The π of L3 whose R_π is tried, besides μ."""


def _cases() -> SearchStrategy[Case]:
    drawn = cases(assumptions=ASSUMPTIONS, large=MODERATE)
    return drawn.map(lambda case: case if resolves_cone(case) else without_near_neighbours(case)).filter(resolves_cone)


@statement(
    "lemma-7",
    "Local gradient condition",
    source="Appendix B.1, Lemma 7",
    claims=always(
        "svm-is-optimal",
        "locally-optimal-is-definition-2",
        "margins-in-cone",
        "no-stationary-point",
        "lower-bound",
        "upper-bound",
        "saturation",
        "correlation",
        "radius-of-pi",
    ),
    states=("no-stationary-point", "lower-bound", "upper-bound", "radius-of-pi"),
    premises=("svm-is-optimal", "locally-optimal-is-definition-2"),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=locally_optimal_choices,
    kernel=FAR,
)
def lemma_7(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and α be locally optimal, p_mm = p_mm(α). There are μ and R such that in C_{μ,R}(p_mm):

        L1. no point is stationary;
        L2. for all q in the cone, C⁻ max_i(1 − s_iα_i) ≤ −⟨∇L(p), q/‖q‖⟩ ≤ C⁺ max_i(1 − s_iα_i);
        L3. for every π > 0 there is R_π such that ‖p‖ ≥ R_π implies
            ⟨∇L(p), p/‖p‖⟩ ≥ (1 + π) ⟨∇L(p), p_mm/‖p_mm‖⟩.

    Effective form. :mod:`.local_constants` derives, from the data alone, μ (the paper's (ε/A)²/8 or more),
    the base radius R, C⁻, C⁺, the explicit lower bound −⟨∇L(p), q̄⟩ ≥ C e^{−⟨p, p_mm⟩/‖p_mm‖²} behind L1, and the bound
    max_i(1 − s_iα_i) ≤ max_i Σ_t e^{−ρ(m_it − w_it)}, ρ = ‖p‖/‖p_mm‖; :mod:`.local_correlation` derives κ with

        −⟨∇L(p), p̄⟩ ≤ (1 + κ/ρ − ν)(−⟨∇L(p), p̄_mm⟩),    ν = 1 − cos(p, p_mm),

    from which R_π = ‖p_mm‖ κ/π. Each is tried at the base radius itself and beyond, at and near the boundary of the
    cone, on its axis, at lateral distances of a few 1/‖k‖, where L3 is almost an equality, and then by local search.
    What the cone is made for, margins within ε of those of p_mm, is checked too, and p_mm exactly.
    """
    problem = case.problem
    solution = yield from certify(problem, case.chosen_tokens, under_test)
    yield local_optimality_claim(problem, case.chosen_tokens, solution, under_test)
    constants = local_constants(problem, solution)
    if constants is None or not is_resolvable(constants, constants.base_rho):
        raise Undecided("no-stationary-point", too_thin(constants), Form.EFFECTIVE)
    yield from claims(constants, under_test, case.rng())


def too_thin(constants: LocalConstants | None) -> str:
    """Why nothing can be said in float64."""
    if constants is None:
        return "the solution under test makes α not locally optimal"
    return (
        f"δ = {constants.delta:.3g}, μ = {constants.mu:.3g}: the cone begins at ‖p‖ = {constants.base_radius:.3g}"
        " or later, where float64 no longer resolves its logits"
    )


def claims(constants: LocalConstants, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """The claims with these constants; a test passes wrong ones."""
    tip = np.zeros(constants.problem.d)
    radii = [(rho, constants.kappa(rho)) for rho in _levels(constants)]
    if not radii:
        raise Undecided("no-stationary-point", too_thin(constants), Form.EFFECTIVE)
    batches = []
    for rho, kappa in radii:
        norms = constants.norm * rho * np.exp(np.abs(rng.standard_normal(POINTS)) * rng.integers(0, 2, POINTS))
        points = cone_points(rng, constants, norms * (1 + 1e-12), constants.mu)
        points = climb(rng, points, _violation(constants, under_test, rho, kappa), rounds=3)
        batches.append(_inside(constants, points, rho))
    view = ConeView(constants, np.concatenate(batches), under_test, tip)
    level = np.repeat(np.arange(len(radii)), [len(points) for points in batches])
    yield margins_in_cone(constants, view.points)
    yield from _first_and_second(view, [rho for rho, _ in radii], level, rng)
    kappas = np.array([kappa for _, kappa in radii])[level]
    known = kappas < math.inf
    left, right = view.correlation(view.pi(np.where(known, kappas, 0.0)))
    yield at_least("correlation", Form.EFFECTIVE, left[known], right[known])
    yield _radius_of_pi(constants, under_test, rng)


def _levels(constants: LocalConstants) -> list[float]:
    return [level * constants.base_rho for level in LEVELS if is_resolvable(constants, level * constants.base_rho)]


def _inside(constants: LocalConstants, points: Float64[np.ndarray, "m d"], rho: float) -> Float64[np.ndarray, "k d"]:
    """The points in C_{μ,ρP}, well enough for rounding, that float64 resolves."""
    norms = norm(points, axis=1)
    with in_floats():
        near = ConeView(constants, points, REFERENCE, np.zeros(constants.problem.d)).nu <= constants.mu
    far = is_resolvable(constants, 1.0) & (norms <= 1e4 * rho * constants.norm)
    return np.asarray(points[near & far & (norms >= rho * constants.norm)])


def _violation(constants: LocalConstants, under_test: Implementation, rho: float, kappa: float) -> Violation:
    """How badly L3 (or, where its κ is infinite, L1) is missed; −∞ outside the cone."""
    tip = np.zeros(constants.problem.d)

    def worst(points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        norms = norm(points, axis=1)
        kept = np.maximum(norms, rho * constants.norm * (1 + 1e-12)) / norms
        with in_floats():
            view = ConeView(constants, points * kept[:, None], under_test, tip)
            left, right = view.correlation(view.pi(kappa)) if kappa < math.inf else (view.descent @ view.axis, 0.0)
            unit = max(kappa, 1e-9) / view.rho if kappa < math.inf else 1.0
            size = np.maximum(np.abs(view.descent @ view.axis), 1e-300)
            inside = (view.nu <= constants.mu * (1 - 1e-6)) & (norms <= 1e4 * rho * constants.norm)
            return np.where(inside, (right - left) / (unit * size), -np.inf)

    return worst


def _first_and_second(
    view: ConeView, rhos: list[float], level: Int64[np.ndarray, "m"], rng: np.random.Generator
) -> Iterator[Claim]:
    """L1 and L2, for q random in the cone, along p and opposite to it; and the bound of 1 − s_iα_i."""
    constants, axis, p = view.constants.carrying, view.constants.solution.direction, view.points
    q = np.stack(
        [cone_points(rng, view.constants, np.ones(len(p)), constants.mu), p, 2 * (p @ axis)[:, None] * axis - p]
    )
    towards: Any = np.vecdot(view.descent, q) / norm(exact(q), axis=-1)
    least, lower, upper = (
        np.stack([log_bound(rho) for rho in rhos])[level]
        for log_bound in (partial(constants.log_descent, axis=True), constants.log_lower, constants.log_upper)
    )
    missed = view.log_missed
    yield at_least("no-stationary-point", Form.EFFECTIVE, *view.descends(least))
    yield at_least("lower-bound", Form.EFFECTIVE, towards, view.in_units(lower + missed))
    yield at_least("upper-bound", Form.EFFECTIVE, view.in_units(upper + missed), norm(view.descent, axis=1))
    yield at_least("saturation", Form.EFFECTIVE, log_saturation(constants, view.rho), missed)


def _radius_of_pi(constants: LocalConstants, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """L3 as the paper states it: from R_π on, for several π."""
    known = [(pi, constants.radius(pi)) for pi in (*PIS, constants.mu)]
    pis, radii = np.array([x for x in known if is_resolvable(constants, x[1] / constants.norm)]).reshape(-1, 2).T
    norms = (radii[:, None] * (1 + 1e-12) * np.exp(np.linspace(0, 2, POINTS))).ravel()
    points = cone_points(rng, constants, norms, constants.mu)
    view = ConeView(constants, points, under_test, np.zeros(constants.problem.d))
    return at_least("radius-of-pi", Form.EFFECTIVE, *view.correlation(np.repeat(pis, POINTS)))
