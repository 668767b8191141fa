"""The local regularization path: minimisers of L over a cone around a direction, outside one ball and inside another.

The points p of the cone around q with R0 ≤ ‖p‖ ≤ R are parametrised by log r and y: p = r (q̄ + κ B y)/|q̄ + κ B y|,
where r = ‖p‖, q̄ = q/‖q‖, κ is the tangent of the cone's half-angle, the columns of B are an orthonormal basis of the
orthogonal complement of q, and |y| ≤ 1. So cones of any width and radii of any size are equally well conditioned. Risks
are compared through the sign and the logarithm of the excess L(p) − L_α, which neither underflows nor cancels; L_α is
the risk if all weight is on the tokens α.

Source: *Max-Margin Token Selection in Attention Mechanism*, Theorem 4 (equation (66) of Theorem 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import minimize

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient
from reference_attention.span import differences_to_first, tangential, thin_tangents

SCANNED_NORMS, SCANNED_DIRECTIONS = 12, 24
POLISHED = 1
"""Number of points of least risk, per radius, from which the optimiser SLSQP starts."""

SignedLog = tuple[Float64[np.ndarray, "*b"], Float64[np.ndarray, "*b"]]
Excess = Callable[[Float64[np.ndarray, "*b d"]], SignedLog]
Gradient = Callable[[Float64[np.ndarray, "*b d"]], ScaledGradient]


@dataclass(frozen=True, eq=False)
class LocalPath:
    """The local path: the minimisers of L over the cone at r radii R.

    Attributes:
        norms: the radii R, increasing, shape (r,).
        points: for each radius the point of least risk that the search reached, shape (r, d).
        sign, log_excess: sign and logarithm of L − L_α at the points, shape (r,).
    """

    norms: Float64[np.ndarray, "r"]
    points: Float64[np.ndarray, "r d"]
    sign: Float64[np.ndarray, "r"]
    log_excess: Float64[np.ndarray, "r"]

    @property
    def sizes(self) -> Float64[np.ndarray, "r"]:
        """Return the norms of the points, which may be less than R, shape (r,)."""
        return np.asarray(np.linalg.norm(self.points, axis=1))


def order(sign: Float64[np.ndarray, "*b"], log_size: Float64[np.ndarray, "*b"]) -> Float64[np.ndarray, "*b"]:
    """Return numbers in the same order as sign·e^{log_size}, by which the entries of an array can be sorted."""
    finite = np.isfinite(log_size)
    beyond = 2 * float(np.max(np.abs(log_size), where=finite, initial=1.0))
    size = beyond + np.where(finite, log_size, -beyond)
    return np.where(sign > 0, size, np.where(sign < 0, -size, 0.0))


class _Cone:
    """The parametrisation of a cone whose half-angle is below a right angle (symbols: see the module).

    Args:
        q: the axis q, of any length.
        mu: the width μ of the cone, 1 minus the cosine of its half-angle.
        rows: rows whose products with a point determine the risk, so that directions orthogonal to the rows and to q
            are equivalent.
    """

    def __init__(self, q: Float64[np.ndarray, "d"], mu: float, rows: Float64[np.ndarray, "m d"]) -> None:
        self.axis = q / np.linalg.norm(q)
        thin = thin_tangents(self.axis, rows)
        full = np.linalg.qr(np.column_stack([self.axis, np.eye(q.size)]))[0][:, 1 : q.size] if thin is None else thin
        self.basis: Float64[np.ndarray, "d k"] = full
        # The tangent of the angle whose cosine is 1 − μ; the last factor keeps rounded points inside the cone.
        self.tangent = math.sqrt(mu * (2 - mu)) / (1 - mu) * (1 - 2.0**-40)

    def raw(self, y: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b d"]:
        """Return q̄ + κ B y, which is not normalized."""
        return np.asarray(self.axis + self.tangent * (y @ self.basis.T))

    def units(self, y: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b d"]:
        """Return the unit vectors of the cone with the coordinates y."""
        v = self.raw(y)
        return np.asarray(v / np.linalg.norm(v, axis=-1, keepdims=True))

    def _across(self, x: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b k"]:
        """Return the coordinates in B of the part of x orthogonal to the axis."""
        return tangential(x, self.axis, self.basis)

    def contains(self, x: Float64[np.ndarray, "*b d"]) -> Bool[np.ndarray, "*b"]:
        """Return whether points lie in the cone."""
        along, across = x @ self.axis, np.linalg.norm(self._across(x), axis=-1)
        return np.asarray((along > 0) & (across <= self.tangent * along))

    def coordinates(self, x: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b k"]:
        """Return the coordinates y of the direction of x, which is moved to the cone's boundary if it lies outside."""
        along = np.maximum(x @ self.axis, 1e-100)[..., None]
        y = self._across(x) / along / self.tangent
        size = np.linalg.norm(y, axis=-1, keepdims=True)
        return np.asarray(y / np.maximum(size, 1.0))


def local_path(
    problem: Problem,
    q: Float64[np.ndarray, "d"],
    alpha: Int64[np.ndarray, "n"],
    norms: Sequence[float] | Float64[np.ndarray, "r"],
    *,
    mu: float,
    radius: float,
    starts: Float64[np.ndarray, "s d"] | None = None,
    seed: int = 0,
    excess: Excess | None = None,
    gradient: Gradient | None = None,
) -> LocalPath:
    """Minimise L over the cone around q with R0 ≤ ‖p‖ ≤ R, for each R: scan points, then run SLSQP from the best.

    The cone is {p : cos(p, q) ≥ 1 − μ}. A point of a smaller radius stays a candidate for all larger radii, so the risk
    never increases along the path.

    Args:
        problem: keys, scores and loss.
        q: the axis q of the cone, of any length.
        alpha: the tokens α of L_α, the risk if all weight is on α.
        norms: the outer radii R > R0.
        mu: the width μ of the cone, 0 < μ < 1.
        radius: the inner radius R0 > 0.
        starts: points to try besides random ones, shape (s, d); a point is tried if it lies in the cone, and its
            direction is tried at every norm.
        seed: seed of the random directions.
        excess: the function p ↦ sign and logarithm of L(p) − L_α; by default computed from the problem.
        gradient: the function p ↦ ∇L(p); by default computed from the problem.

    Raises:
        InvalidInput: μ, R0 or a radius is out of range.
    """
    radii = np.unique(np.asarray(norms, dtype=np.float64))
    if not 0 < mu < 1 or not 0 < radius < math.inf:
        raise InvalidInput(f"mu, radius: {mu:g} and {radius:g} make no cone; give 0 < mu < 1 and radius > 0.")
    if radii.size == 0 or not np.isfinite(radii).all() or radii[0] <= radius:
        raise InvalidInput(f"norms: radii must be finite and beyond the inner radius {radius:g}; give larger ones.")
    if excess is None:

        def excess(p: Float64[np.ndarray, "*b d"]) -> SignedLog:
            sign, size = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, p, alpha)
            return np.asarray(sign), np.asarray(size)

    if gradient is None:

        def gradient(p: Float64[np.ndarray, "*b d"]) -> ScaledGradient:
            return risk.scaled_gradient(problem.keys, problem.scores, problem.loss, p)

    cone = _Cone(q, mu, differences_to_first(problem.keys))
    rng = np.random.default_rng(seed)
    k = cone.basis.shape[1]
    random_coordinates = rng.standard_normal((SCANNED_DIRECTIONS, k))
    random_coordinates /= np.maximum(np.linalg.norm(random_coordinates, axis=1, keepdims=True), 1e-300)
    random_coordinates *= np.where(np.arange(SCANNED_DIRECTIONS) % 2 == 0, 1.0, rng.uniform(0, 1, SCANNED_DIRECTIONS))[
        :, None
    ]
    start_points = np.zeros((0, problem.d)) if starts is None else np.asarray(starts, dtype=np.float64)
    scanned = np.concatenate([np.zeros((1, k)), cone.coordinates(start_points), random_coordinates])
    minimisers: list[Float64[np.ndarray, "d"]] = []
    for R in radii.tolist():
        sizes = np.geomspace(radius, R, SCANNED_NORMS)
        grid = (sizes[:, None, None] * cone.units(scanned)).reshape(-1, problem.d)
        sized = np.linalg.norm(start_points, axis=1)
        among = start_points[(sized >= radius) & (sized <= R) & cone.contains(start_points)]
        grid = np.concatenate([grid, among, np.array(minimisers).reshape(-1, problem.d)])
        ranks = order(*excess(grid))
        candidates = [grid[j] for j in np.argsort(ranks, kind="stable")[:POLISHED]]
        candidates += [_polish(cone, excess, gradient, p, radius, R) for p in candidates]
        if excess(candidates[0])[0] > 0:
            # SLSQP stops where the excess L − L_α turns negative; start it again from there, with the logarithm of L_α
            # − L.
            candidates += [
                _polish(cone, excess, gradient, p, radius, R) for p in candidates[POLISHED:] if excess(p)[0] < 0
            ]
        points = np.array(candidates)
        best = points[int(np.argmin(order(*excess(points))))]
        minimisers.append(best)
    points = np.array(minimisers)
    sign, log_size = excess(points)
    return LocalPath(radii, points, np.asarray(sign, dtype=np.float64), np.asarray(log_size))


def _polish(
    cone: _Cone,
    excess: Excess,
    gradient: Gradient,
    start: Float64[np.ndarray, "d"],
    radius: float,
    R: float,
) -> Float64[np.ndarray, "d"]:
    """Run SLSQP in (y, log r) from ``start``: lower log |L − L_α| if L > L_α at the start, otherwise raise it."""
    sign, size = excess(start)
    if sign == 0 or not np.isfinite(size):
        return start
    sign_of_excess, reach = float(sign), math.log(R / radius)
    scale = max(1.0, abs(float(size)))

    def point(z: Float64[np.ndarray, "k1"]) -> Float64[np.ndarray, "d"]:
        return np.asarray(radius * math.exp(min(max(z[-1], 0.0), 1.0) * reach) * cone.units(z[:-1]))

    def objective(z: Float64[np.ndarray, "k1"]) -> tuple[float, Float64[np.ndarray, "k1"]]:
        p = point(z)
        s, l = (float(x) for x in excess(p))
        if s == 0 or not math.isfinite(l):
            return 0.0, np.zeros_like(z)
        if s != sign_of_excess:
            # The sign of L − L_α has changed: reject the point if the sign has become positive, accept it if it has
            # become negative.
            return (1e3 if sign_of_excess < 0 else -1e3), np.zeros_like(z)
        g = gradient(p)
        slope = math.exp(min(float(g.log_scale) - l, 600.0)) * np.asarray(g.direction)
        v = cone.raw(z[:-1])
        length = float(np.linalg.norm(v))
        across = slope - (slope @ p) * p / (p @ p)
        dy = float(np.linalg.norm(p)) / length * cone.tangent * tangential(across, cone.axis, cone.basis)
        return sign_of_excess * l / scale, np.append(dy, reach * (slope @ p)) * (1 / scale)

    y = cone.coordinates(start)
    inner = math.log(float(np.linalg.norm(start)) / radius) / reach if reach > 0 else 1.0
    first = np.append(y, min(max(inner, 0.0), 1.0))
    ball = {"type": "ineq", "fun": lambda z: 1 - z[:-1] @ z[:-1], "jac": lambda z: np.append(-2 * z[:-1], 0.0)}
    bounds = [(-1.0, 1.0)] * y.size + [(0.0, 1.0)]
    result = minimize(
        objective,
        first,
        jac=True,
        method="SLSQP",
        bounds=bounds,
        constraints=[ball] if y.size else [],
        options={"maxiter": 40, "ftol": 1e-14},
    )
    z = np.asarray(result.x, dtype=np.float64)
    if not np.isfinite(z).all():
        return start
    z[:-1] /= max(1.0, float(np.linalg.norm(z[:-1])))
    return point(z)
