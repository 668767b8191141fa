"""The limit claims of Theorem 8: minimisers on spheres, followed from every solution, and the bound for all of them.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 8; derivation in
:mod:`.theorem_8_nonlinear_heads`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm
from scipy.optimize import minimize

from generators.optimal_sets import LinearMixing
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin_sets import ChoiceSolution, MaxMarginSets
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.curves.constraints import EXPONENT_ROUNDING, log_excess
from theorems.curves.followed_path import Followed, FollowedPath
from theorems.curves.reduced import Reduced, tangent_basis
from theorems.curves.sphere import Sphere
from theorems.rounding.bounded import exact, rounded
from theorems.token_selection.global_paths.theorem_1_regularization_path import PATH_CORRELATION, on_the_path
from theorems.token_selection.nonlinear_heads.set_constants import (
    allowed_choices,
    constraints_of,
    dual_bound,
    excess_of,
    excess_rounding,
    least_margin,
    separation,
    towards,
)

RADII = (1e2, 1e4, 1e6)
"""RΘ/(1 + κ) of the spheres."""
LIMIT = 1e-6
"""1 − cos that is reached at the last radius: there κ/RΘ is below it."""
MOST_FOLLOWED = 3
"""Solutions from which the path is followed."""
SHARP_RADII = (1e2, 1e3, 1e4, 1e5, 1e6)
"""RΘ of the spheres on which the offset from the ray is predicted."""
LARGEST_ROUNDING = 1e-3
"""Errors of an exponent beyond it leave no digits of the path."""


def path_to_the_set(
    problem: Problem,
    mixing: LinearMixing,
    sets: MaxMarginSets,
    seen: Implementation,
    kappa: float,
) -> Iterator[Claim]:
    """Descend on spheres from the ray of every solution, and bound the distance of whatever lies below."""
    rhos = (1 + kappa) * np.array(RADII)
    rays, points = [], []
    for solution in sets.solutions[:MOST_FOLLOWED]:
        basis = tangent_basis(solution.svm.direction)
        y = np.zeros(problem.d - 1)
        for rho in rhos.tolist():
            y, point = descend(problem, seen, sets.norm, solution, basis, rho, y)
            rays.append(sets.norm * (rho * solution.svm.direction))
            points.append(point)
    ray, p = np.array(rays), exact(np.array(points))
    value = excess_of(seen, problem, mixing, p.value, "path-distance", Form.LIMIT)
    # It is below the ray up to what both of them may be off by.
    least = least_margin(mixing, problem, kappa, np.resize(rhos, len(rays)), ray)
    least = least.widened(2 * excess_rounding(problem, mixing, ray))
    allowed = allowed_choices(sets, least, p)
    duals = dual_bound(problem, mixing, sets, allowed, least) - value - np.log(exact(problem.n))
    length = norm(p, axis=1, keepdims=True)
    # ‖p̄ − p̄_α‖²/2: 1 − cos without cancellation.
    off = np.sum(((p / length)[:, None] - towards(sets)) ** 2, axis=-1) / 2
    apart = np.min(np.where(allowed, off, np.inf), axis=-1)
    bound = 1 - np.maximum(least, duals) * norm(rounded(sets.choices[0].p)) / length[:, 0]
    yield at_least("path-distance", Form.LIMIT, bound, apart, why=EXPONENT_ROUNDING, points="minimiser on a sphere")
    yield at_least("path-limit", Form.LIMIT, LIMIT, apart[len(rhos) - 1 :: len(rhos)], points="solution")


def descend(
    problem: Problem,
    seen: Implementation,
    unit: float,
    solution: ChoiceSolution,
    basis: Float64[np.ndarray, "d e"],
    rho: float,
    start: Float64[np.ndarray, "e"],
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "d"]]:
    """A minimiser of log(L − L_*) on the sphere, its tangential coordinates and itself; never above the ray or the
    start.
    """
    axis = solution.svm.direction

    def point(y: Float64[np.ndarray, "e"]) -> tuple[Float64[np.ndarray, "d"], float]:
        size = float(np.linalg.norm(y))
        height = math.sqrt(max((rho - size) * (rho + size), 0.0))
        return unit * (height * axis + basis @ y), height

    def objective(y: Float64[np.ndarray, "e"]) -> tuple[float, Float64[np.ndarray, "e"]]:
        if not np.linalg.norm(y) < 0.9 * rho:
            return 1e300, np.zeros_like(y)
        p, height = point(y)
        value = float(log_excess(seen, problem, p))
        found = seen.scaled_gradient(problem.keys, problem.scores, problem.loss, p)
        slope = unit * math.exp(min(float(found.log_scale) - value, 600.0)) * np.asarray(found.direction)
        return value + rho, basis.T @ slope - (slope @ axis) * y / height

    tries = [np.zeros_like(start), start]
    if start.size:
        tries.append(np.asarray(minimize(objective, start, jac=True, method="BFGS", options={"maxiter": 30}).x))
    values = log_excess(seen, problem, np.array([point(y)[0] for y in tries]))
    best = int(np.nanargmin(values)) if np.isfinite(values).any() else 0
    return tries[best], point(tries[best])[0]


def sharp_claims(
    problem: Problem,
    mixing: LinearMixing,
    sets: MaxMarginSets,
    seen: Implementation,
    kappa: float,
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """Theorem 1's claims on the path near the lowest solution, where no other optimal token competes in the limit.

    There L − L_* is, to rounding, Σ_j c_j e^{−margin_j} with the first-order costs of :func:`log_token_costs`,
    divided by how many optimal tokens share the key of α.
    """
    lowest, best = math.inf, None
    for solution in sets.solutions[:MOST_FOLLOWED]:
        basis = tangent_basis(solution.svm.direction)
        ahead, multiplicity = separation(problem, sets, solution)
        constraints = constraints_of(problem, mixing, solution, multiplicity)
        radii = [
            rho for rho in SHARP_RADII if constraints.exponent_rounding(rho * solution.svm.direction) < LARGEST_ROUNDING
        ]
        spheres = []
        for rho in radii:
            reduced = Reduced.at(constraints, basis, rho)
            y, _ = reduced.newton(np.zeros(problem.d - 1))
            if first_order_is_exact(problem, mixing, solution, kappa, rho, ahead, float(np.linalg.norm(y))):
                spheres.append(Sphere(problem, solution.svm, basis, reduced, seen))
        if not spheres:
            return
        value = spheres[-1].reduced.value(spheres[-1].reduced.newton(np.zeros(problem.d - 1))[0]) + constraints.log_unit
        if value < lowest:
            lowest, best = value, (constraints, basis, solution, spheres)
    if best is not None:
        constraints, basis, solution, spheres = best
        at = [Followed.at(s, constraints) for s in spheres]
        yield from on_the_path(FollowedPath(at, constraints, basis, solution.svm, rng, PATH_CORRELATION))


def first_order_is_exact(
    problem: Problem,
    mixing: LinearMixing,
    solution: ChoiceSolution,
    kappa: float,
    rho: float,
    ahead: float,
    offset: float,
) -> bool:
    """Whether normaliser, curvature of loss and head, and other optimal tokens are below rounding on the path at ρ.

    All margins are at least ρ − κ there, so q ≤ T e^{−(ρ−κ)}; an optimal token that is ``ahead`` behind at p_mm is by
    ahead·ρ − ‖k_α − k_α'‖·‖p_mm‖·offset behind on the path.
    """
    head = mixing.head
    stiff = head.units("log_stiffness", mixing.best, head.signs)
    reach = np.log(np.maximum(mixing.gaps.max(axis=1), 2.0**-1000))
    curvature = np.logaddexp.reduce([0.0, math.log(float(mixing.c1.max())), float(np.max(stiff + reach))])
    small = math.log(problem.T) + float(curvature) - (rho - kappa)
    best = problem.keys[np.arange(problem.n), solution.alpha]
    apart = float(np.linalg.norm(problem.keys - best[:, None], axis=2).max()) * solution.svm.norm
    rivals = math.log(problem.T) - (ahead * rho - apart * offset) if ahead < math.inf else -math.inf
    return max(small, rivals) < math.log(EPS) - 3
