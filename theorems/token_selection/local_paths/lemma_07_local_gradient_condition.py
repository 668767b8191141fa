"""Lemma 7: around a locally optimal direction the gradient pushes outward, and no direction much more than p_mm.

Main results: no stationary point (L1), bounds of the order of the unselected mass (L2), gradient correlation (L3),
all with explicit constants.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.problems import cases
from theorems.core.att_svm import certified
from theorems.core.claim import Claim, Form, Undecided, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import FAR
from theorems.core.points import climb
from theorems.core.statement import statement
from theorems.rounding.evaluation import GRADIENT
from theorems.rounding.forward_error import LOG_WEIGHTS
from theorems.token_selection.local_paths.chosen_tokens import locally_optimal_choices
from theorems.token_selection.local_paths.cone_points import ConeView, cone_points, is_resolvable, log_saturation
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
    yield from _first_and_second(constants, views, [rho for rho, _ in radii], rng)
    pairs = [view.correlation(kappa) for view, (_, kappa) in zip(views, radii, strict=True) if kappa < math.inf]
    scales = [np.linalg.norm(view.descent, axis=1) for view, (_, k) in zip(views, radii, strict=True) if k < math.inf]
    value, rounding = (np.concatenate(parts) if parts else np.empty(0) for parts in _columns(pairs, 2))
    scale = np.maximum(np.concatenate(scales) if scales else np.empty(0), 1e-300)
    yield at_least("correlation", Form.EFFECTIVE, value, 0.0, rounding=rounding, scale=scale, why=GRADIENT)
    yield _radius_of_pi(constants, under_test, rng)


def _columns(pairs: Sequence[tuple[Float64[np.ndarray, "_"], ...]], width: int) -> list[list[Float64[np.ndarray, "_"]]]:
    return [[pair[k] for pair in pairs] for k in range(width)]


def _levels(constants: LocalConstants) -> list[float]:
    return [level * constants.base_rho for level in LEVELS if is_resolvable(constants, level * constants.base_rho)]


def _inside(constants: LocalConstants, points: Float64[np.ndarray, "m d"], rho: float) -> Float64[np.ndarray, "k d"]:
    """The points in C_{μ,ρP}, well enough for rounding, that float64 resolves."""
    norms = np.linalg.norm(points, axis=1)
    apart = points / norms[:, None] - constants.solution.direction
    nu = np.sum(apart * apart, axis=1) / 2
    near = (nu <= constants.mu) | (constants.problem.d == 1)
    far = is_resolvable(constants, 1.0) & (norms <= 1e4 * rho * constants.norm)
    return np.asarray(points[near & far & (norms >= rho * constants.norm)])


def _violation(
    constants: LocalConstants, under_test: Implementation, rho: float, kappa: float
) -> Callable[[Float64[np.ndarray, "m d"]], Float64[np.ndarray, "m"]]:
    """How badly L3 (or, where its κ is infinite, L1) is missed; −∞ outside the cone."""
    tip = np.zeros(constants.problem.d)

    def worst(points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        norms = np.linalg.norm(points, axis=1)
        kept = np.maximum(norms, rho * constants.norm * (1 + 1e-12)) / norms
        view = ConeView(constants, points * kept[:, None], under_test, tip)
        inside = (view.nu <= constants.mu * (1 - 1e-6)) & (norms <= 1e4 * rho * constants.norm)
        axial = view.descent @ constants.solution.direction
        value = view.correlation(kappa)[0] / (max(kappa, 1e-9) / view.rho) if kappa < math.inf else axial
        size = np.maximum(np.abs(axial), 1e-300)
        return np.where(inside, -value / size, -np.inf)

    return worst


def _first_and_second(
    constants: LocalConstants, views: list[ConeView], levels: list[float], rng: np.random.Generator
) -> Iterator[Claim]:
    axis, sides = constants.solution.direction, []
    for view, rho in zip(views, levels, strict=True):
        m = len(view.points)
        axes = np.broadcast_to(axis, view.points.shape)
        q = cone_points(rng, constants, np.ones(m), constants.mu)
        opposite = 2 * (view.moved @ axis)[:, None] * axis - view.moved
        unit = view.moved / view.lengths[:, None]
        # In logarithms: either factor alone may be beyond float64, as |ℓ'| at scores of 10⁸ is.
        error = np.expm1(view.log_error)
        lower = view.in_units(constants.log_lower(rho) + view.log_missed)
        upper = view.in_units(constants.log_upper(rho) + view.log_missed)
        least = view.in_units(constants.log_descent(rho, axis=True) - view.axial)
        first, first_error = view.along(axes)
        towards = [view.along(x) for x in (q, unit, opposite / view.lengths[:, None])]
        value = np.min([v + r for v, r in towards], axis=0)
        size = np.linalg.norm(view.descent, axis=1)
        spread = np.linalg.norm(view.own.error, axis=1)
        saturated = log_saturation(constants, view.rho)
        sides.append(
            (
                (first, least, first_error + least * error),
                (value, lower, lower * error),
                (upper, size, spread + upper * error),
                (saturated, view.log_missed, view.log_error),
            )
        )
    forms = ("no-stationary-point", "lower-bound", "upper-bound", "saturation")
    for k, name in enumerate(forms):
        left, right, rounding = (np.concatenate(parts) for parts in _columns([s[k] for s in sides], 3))
        scale = 1.0 if name == "saturation" else np.maximum(np.abs(right), rounding) + 1e-300
        why = LOG_WEIGHTS if name == "saturation" else GRADIENT
        yield at_least(name, Form.EFFECTIVE, left, right, rounding=rounding, scale=scale, why=why)


def _radius_of_pi(constants: LocalConstants, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """L3 as the paper states it: from R_π on, for several π."""
    tip, rows = np.zeros(constants.problem.d), []
    for pi in (*PIS, constants.mu):
        rho = constants.radius(pi) / constants.norm
        if not is_resolvable(constants, rho):
            continue
        norms = rho * constants.norm * (1 + 1e-12) * np.exp(np.linspace(0, 2, POINTS))
        view = ConeView(constants, cone_points(rng, constants, norms, constants.mu), under_test, tip)
        value, rounding = view.along(pi * np.broadcast_to(constants.solution.direction, view.points.shape) - view.apart)
        rows.append((value, rounding, np.maximum(np.linalg.norm(view.descent, axis=1), 1e-300)))
    value, rounding, scale = (np.concatenate(parts) if parts else np.empty(0) for parts in _columns(rows, 3))
    return at_least("radius-of-pi", Form.EFFECTIVE, value, 0.0, rounding=rounding, scale=scale, why=GRADIENT)
