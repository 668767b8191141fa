"""A W of nearly the largest margin min_j g_j·W among the W with ‖W‖_op ≤ 1, and its duals λ_j, in floats.

g_j are N matrices of the shape (d, e) of W. Newton's method minimises the barrier −s/μ − log det(I − WᵀW) − Σ log(g_j·W
− s), in vec(W) and s, for decreasing μ. At its minimum, the duals λ_j = μ/(g_j·W − s) have the sum 1, and ‖Σ λ_j g_j‖_⋆
− s ≤ (N + 2 min(d, e)) μ. Steps are computed in the coordinates of the singular vectors of W. Scaled suitably, the
Hessian of −log det is 2 (I + σ_a σ_b P) there, where σ_a are the singular values of W and P exchanges the entries (a,
b) and (b, a).

References: Y. Nesterov and A. Nemirovskii, *Interior-Point Polynomial Algorithms in Convex Programming* (1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

Matrix = Float64[np.ndarray, "d e"]
Duals = Float64[np.ndarray, "N"]

FIRST, USEFUL, LAST, FACTOR = 0.1, 1.5e-7, 0.9e-9, 0.1
"""The first weight μ of the barrier, the largest μ whose minimum is accepted as result, and the last μ, all in units of
the margin of the start W; and the factor by which μ is multiplied."""
INSIDE = 0.9
"""Value of ‖W‖_op at the start W, and largest share of the way to the domain's boundary that a step may go."""
STEPS, HALVINGS = 30, 40
"""Largest number of Newton steps for one μ (three to six are usually enough), and of halvings of a step."""
CENTRED = 0.3
"""Newton decrement (the length of a step in the norm of the Hessian) below which μ is decreased: there Newton's method
converges quadratically."""


def spectral_max_margin(rows: Float64[np.ndarray, "N k"], feasible: Matrix) -> tuple[Matrix, Duals] | None:
    """Return W and its duals λ ≥ 0; None where rounding leads out of the barrier's domain before μ is small enough.

    Args:
        rows: the rows vec(g_j).
        feasible: a W whose margins g_j·W are all positive.
    """
    W = INSIDE * feasible / np.linalg.norm(feasible, ord=2)
    unit = float((rows @ W.ravel()).min())
    if not unit > 0:
        return None
    barrier, point, mu = _Barrier(rows / unit, feasible.shape), np.append(W.ravel(), 0.5), FIRST
    best, least = None, np.inf
    while mu >= LAST:
        centred = barrier.centre(point, mu)
        if centred is None:
            break
        point, duals = centred, barrier.duals(centred, mu)
        # Rounding may widen the duality gap again for the last μ, so the point with the smallest gap is kept.
        if mu <= USEFUL and (gap := barrier.gap(point, duals)) < least:
            best, least = (point[:-1].reshape(W.shape), duals), gap
        mu *= FACTOR
    return best


@dataclass(frozen=True, eq=False)
class _Barrier:
    """The barrier of the module as a function of points (vec(W), s)."""

    rows: Float64[np.ndarray, "N k"]
    shape: tuple[int, int]

    @cached_property
    def _exchanges(self) -> tuple[Int64[np.ndarray, "r"], Int64[np.ndarray, "r"]]:
        """Return the indices in vec(W) of the entries (a, b) with a, b < min(d, e), and of the entries (b, a)."""
        places = np.arange(self.rows.shape[1]).reshape(self.shape)[: min(self.shape), : min(self.shape)]
        return places.ravel(), places.T.ravel()

    def slacks(self, point: Float64[np.ndarray, "l"]) -> Duals:
        """Return the amounts g_j·W − s by which margins exceed s."""
        return np.asarray(self.rows @ point[:-1] - point[-1])

    def duals(self, point: Float64[np.ndarray, "l"], mu: float) -> Duals:
        """Return the duals λ_j = μ/(g_j·W − s) after one more Newton step, to first order in the step.

        The slacks g_j·W − s at the point itself have few correct digits; Σ λ_j g_j computed from them would be
        inaccurate.
        """
        step, _ = self._newton(point, mu)
        slacks = self.slacks(point)
        relative_changes = (self.rows @ step[:-1] - step[-1]) / slacks
        return np.asarray(np.maximum(mu / slacks * (1 - relative_changes), 0.0))

    def gap(self, point: Float64[np.ndarray, "l"], duals: Duals) -> float:
        """Return the relative gap between ‖Σ λ_j g_j‖_⋆/Σ λ_j and min g_j·W/‖W‖_op; ∞ where they bound no margin."""
        size = float(np.linalg.norm(point[:-1].reshape(self.shape), ord=2))
        margin, total = float((self.rows @ point[:-1]).min()) / size, float(duals.sum())
        if not (margin > 0 and 0 < total < np.inf):
            return np.inf
        return float(np.linalg.norm((duals @ self.rows).reshape(self.shape), ord="nuc")) / (total * margin) - 1

    def centre(self, point: Float64[np.ndarray, "l"], mu: float) -> Float64[np.ndarray, "l"] | None:
        """Run Newton's method from ``point`` and return its last point; None if rounding leads out of the domain."""
        for _ in range(STEPS):
            step, decrement = self._newton(point, mu)
            if not np.isfinite(decrement):
                return None
            near = decrement < CENTRED
            point = point + (1.0 if near else self._length(point, step)) * step
            if not self._is_inside(point):
                return None
            if near:
                break
        return point

    def _newton(self, point: Float64[np.ndarray, "l"], mu: float) -> tuple[Float64[np.ndarray, "l"], float]:
        """Return the Newton step and its decrement."""
        (d, e), k = self.shape, min(self.shape)
        u, s, vt = np.linalg.svd(point[:-1].reshape(d, e))
        room = (1 - s) * (1 + s)
        unit = np.sqrt(np.outer(np.append(room, np.ones(d - k)), np.append(room, np.ones(e - k))))
        slacks = self.slacks(point)
        rotated_rows = np.einsum("ia,nij,bj->nab", u, self.rows.reshape(-1, d, e), vt) * unit
        table = np.hstack([rotated_rows.reshape(len(slacks), -1), -np.ones((len(slacks), 1))]) / slacks[:, None]
        hessian = table.T @ table
        hessian[np.arange(d * e), np.arange(d * e)] += 2.0
        hessian[self._exchanges] += 2 * np.outer(s, s).ravel()
        gradient = -table.sum(axis=0)
        gradient[-1] -= 1 / mu
        gradient[np.arange(d * e).reshape(d, e).diagonal()] += 2 * s
        scale = np.sqrt(hessian.diagonal())
        try:
            step = -np.linalg.solve(hessian / np.outer(scale, scale), gradient / scale) / scale
        except np.linalg.LinAlgError:
            return point, np.nan
        matrix_step = u @ (step[:-1].reshape(d, e) * unit) @ vt
        return np.append(matrix_step.ravel(), step[-1]), float(np.sqrt(abs(step @ gradient)))

    def _length(self, point: Float64[np.ndarray, "l"], step: Float64[np.ndarray, "l"]) -> float:
        """Return a share of the step, at most 1, with which the point stays clear of the domain's boundary."""
        length = 1.0
        for _ in range(HALVINGS):
            if self._is_inside(point + length / INSIDE * step):
                return length
            length /= 2
        return 0.0

    def _is_inside(self, point: Float64[np.ndarray, "l"]) -> bool:
        """Return whether ‖W‖_op < 1 and all margins exceed s."""
        size = float(np.linalg.norm(point[:-1].reshape(self.shape), ord=2))
        return size < 1 and bool((self.slacks(point) > 0).all())
