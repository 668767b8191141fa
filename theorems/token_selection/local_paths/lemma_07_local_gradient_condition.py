"""Lemma 7: around a locally optimal direction the gradient pushes outward, and no direction much more than p_mm.

Main results: no stationary point (L1), bounds of the order of the unselected mass (L2), gradient correlation (L3),
all with explicit constants.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.problems import cases
from theorems.core.att_svm import certified
from theorems.core.claim import Claim, Form, Undecided, at_least
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import FAR
from theorems.core.points import Violation, climb
from theorems.core.statement import statement
from theorems.rounding.bounded import exact, in_floats
from theorems.token_selection.local_paths.chosen_tokens import locally_optimal_choices
from theorems.token_selection.local_paths.cone_points import (
    ConeView,
    cone_points,
    is_resolvable,
    joined,
    log_saturation,
)
from theorems.token_selection.local_paths.local_cases import resolved, without_near_neighbours
from theorems.token_selection.local_paths.local_constants import LocalConstants, local_constants
from theorems.token_selection.local_paths.margin_claims import margins_in_cone, solves_att_svm

ASSUMPTIONS = ("well-behaved-loss", "separable", "locally-optimal")

LEVELS = (1.0, 3.0, 30.0)
"""Radii of the points, in multiples of the base radius; each level has its own constants."""

POINTS = 48
"""Points per level, before the adversarial search."""

PIS = (1.0, 1 / 16)
"""The π of L3 whose R_π is tried, besides μ."""


def _cases() -> SearchStrategy[Case]:
    drawn = cases(assumptions=ASSUMPTIONS)
    return drawn.map(lambda case: case if resolved(case) else without_near_neighbours(case)).filter(resolved)


@statement(
    "lemma-7",
    "Local gradient condition",
    source="Appendix B.1, Lemma 7",
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
    solution = yield from certified(problem, case.chosen, under_test, solves_att_svm)
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
    views = []
    for rho, kappa in radii:
        norms = constants.norm * rho * np.exp(np.abs(rng.standard_normal(POINTS)) * rng.integers(0, 2, POINTS))
        points = cone_points(rng, constants, norms * (1 + 1e-12), constants.mu)
        points = climb(rng, points, _violation(constants, under_test, rho, kappa), rounds=3)
        views.append(ConeView(constants, _inside(constants, points, rho), under_test, tip))
    yield margins_in_cone(constants, np.concatenate([view.points for view in views]))
    bounds = [_bounds(view, rho, rng) for view, (rho, _) in zip(views, radii, strict=True)]
    for name in bounds[0]:
        yield at_least(name, Form.EFFECTIVE, *joined([sides[name] for sides in bounds]))
    pairs = [
        view.correlation(view.pi(kappa)) for view, (_, kappa) in zip(views, radii, strict=True) if kappa < math.inf
    ]
    yield at_least("correlation", Form.EFFECTIVE, *joined(pairs))
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


def _bounds(view: ConeView, rho: float, rng: np.random.Generator) -> dict[str, tuple[Any, Any]]:
    """Both sides of L1 and L2, for q random in the cone, along p and opposite to it; and of the bound of 1 − s_iα_i."""
    constants, axis, p = view.constants, view.constants.solution.direction, view.points
    q = np.stack([cone_points(rng, constants, np.ones(len(p)), constants.mu), p, 2 * (p @ axis)[:, None] * axis - p])
    carrying, missed = constants.carrying, view.log_missed
    lower = view.in_units(carrying.log_lower(rho) + missed)
    return {
        "no-stationary-point": view.descends(rho),
        "lower-bound": (np.min(np.vecdot(view.descent, q) / norm(exact(q), axis=-1), axis=0), lower),
        "upper-bound": (view.in_units(carrying.log_upper(rho) + missed), norm(view.descent, axis=1)),
        "saturation": (log_saturation(carrying, view.rho), missed),
    }


def _radius_of_pi(constants: LocalConstants, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """L3 as the paper states it: from R_π on, for several π."""
    tip, sides = np.zeros(constants.problem.d), []
    for pi in (*PIS, constants.mu):
        rho = constants.radius(pi) / constants.norm
        if not is_resolvable(constants, rho):
            continue
        norms = rho * constants.norm * (1 + 1e-12) * np.exp(np.linspace(0, 2, POINTS))
        view = ConeView(constants, cone_points(rng, constants, norms, constants.mu), under_test, tip)
        sides.append(view.correlation(pi))
    return at_least("radius-of-pi", Form.EFFECTIVE, *joined(sides))
