"""The nuclear-norm SVM in floats, by its dual: max Σ b_j λ_j over λ ≥ 0 with ‖M‖_op ≤ 1, M = Σ λ_j a_j z_jᵀ.

The primal problem is min ‖W‖_⋆ subject to the margins ⟨a_j z_jᵀ, W⟩ ≥ b_j for j = 1 … N. Newton's method minimises the
barrier −Σ b_j λ_j/μ − log det(I − MᵀM) − Σ log λ_j, in N variables, for decreasing μ. At its minimum W = 2μ M (I −
MᵀM)⁻¹ is feasible, with margins b_j + μ/λ_j and ‖W‖_⋆ − Σ b_j λ_j ≤ (N + 2 min(d, e)) μ. So two kinds of products are
about μ: a singular value of W times 1 minus the corresponding singular value of M, and λ_j times the margin minus b_j.
One factor of each product is small. Which one it is shows the rank of W and the constraints that are tight, unless the
solution is degenerate.

References: Y. Nesterov and A. Nemirovskii, *Interior-Point Polynomial Algorithms in Convex Programming* (1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64

Duals = Float64[np.ndarray, "N"]

FIRST, LAST, FACTOR = 0.25, 1e-9, 0.1
"""The first and last weight μ of the barrier, in units of Σ b_j λ_j, and the factor by which μ is multiplied."""
STEPS = 30
"""Largest number of Newton steps for one μ; three to six are usually enough."""
CENTRED = 0.3
"""Newton decrement (the length of a step in the norm of the Hessian) below which μ is decreased: there Newton's method
converges quadratically."""
LARGEST = 1e9
"""Largest Σ b_j λ_j, in units of the largest b_j; if it is larger, no W separates, or only with a margin too small for
floats."""
BACK, HALVINGS = 0.9, 60
"""Largest share of the way to the domain's boundary that a step may go, and largest number of times that a step is
shortened until it stays inside the domain."""


@dataclass(frozen=True, eq=False)
class NuclearFloatSolution:
    """A point near the solution of the nuclear-norm SVM; symbols as in the module.

    Attributes:
        duals: λ > 0, shape (N,).
        u, v: singular vectors of M, which are also singular vectors of W, shapes (d, k) and (e, k) with k = min(d, e).
        weights: singular values of W, decreasing, shape (k,).
        support: mask of the constraints guessed to be tight: those with b_j λ_j/Σ b_j λ_j larger than the margin's
            relative excess over b_j, shape (N,).
        rank: guessed rank of W: the number of its singular values that exceed 1 minus the corresponding singular value
            of M.
        value: Σ b_j λ_j.
    """

    duals: Duals
    u: Float64[np.ndarray, "d k"]
    v: Float64[np.ndarray, "e k"]
    weights: Float64[np.ndarray, "k"]
    support: Bool[np.ndarray, "N"]
    rank: int
    value: float


def nuclear_float_solution(
    a: Float64[np.ndarray, "N d"], z: Float64[np.ndarray, "N e"], b: Float64[np.ndarray, "N"]
) -> NuclearFloatSolution | None:
    """Return the barrier's minimum for the last μ; None where Σ b_j λ_j appears to be unbounded in floats."""
    barrier = _Barrier(a, z, b)
    duals = np.full(len(b), 0.5 / max(float(np.linalg.norm(a.T @ z, ord=2)), 1.0))
    mu = FIRST * float(b @ duals)
    while True:
        duals = barrier.centre(duals, mu)
        value = float(b @ duals)
        if not value < LARGEST * float(b.max()):
            return None
        if mu <= LAST * value:
            break
        mu = max(FACTOR * mu, LAST * value / 2)
    u, s, vt = np.linalg.svd(barrier.matrix(duals), full_matrices=False)
    if not s[0] < 1:
        # Rounding led out of the barrier's domain.
        return None
    weights = 2 * mu * s / ((1 - s) * (1 + s))
    support = b * duals / value > mu / (b * duals)
    # Fix the signs of the singular vectors: the largest entry of each left vector is positive.
    signs = np.sign(u[np.argmax(np.abs(u), axis=0), np.arange(u.shape[1])])
    return NuclearFloatSolution(duals, u * signs, vt.T * signs, weights, support, int(np.sum(weights > 1 - s)), value)


@dataclass(frozen=True, eq=False)
class _Barrier:
    """The barrier of the dual problem; symbols as in the module."""

    a: Float64[np.ndarray, "N d"]
    z: Float64[np.ndarray, "N e"]
    b: Duals

    @cached_property
    def _grams(self) -> tuple[Float64[np.ndarray, "N N"], Float64[np.ndarray, "N N"]]:
        """Return the Gram matrices a aᵀ and z zᵀ."""
        return self.a @ self.a.T, self.z @ self.z.T

    def matrix(self, duals: Duals) -> Float64[np.ndarray, "d e"]:
        """Return M = Σ λ_j a_j z_jᵀ."""
        return np.asarray((self.a * duals[:, None]).T @ self.z)

    def centre(self, duals: Duals, mu: float) -> Duals:
        """Run Newton's method in units of the given λ until it converges or rounding stops it; return the last λ."""
        for _ in range(STEPS):
            u, s, vt = np.linalg.svd(self.matrix(duals), full_matrices=False)
            au, zv, ratio = self.a @ u, self.z @ vt.T, 1 / ((1 - s) * (1 + s))
            # ``slope`` is a_jᵀ M (I − MᵀM)⁻¹ z_k; (I − MMᵀ)⁻¹ and (I − MᵀM)⁻¹ are the identity on the complement of the
            # singular vectors.
            slope = (au * (s * ratio)) @ zv.T
            left, right = (gram + (x * (ratio - 1)) @ x.T for gram, x in zip(self._grams, (au, zv), strict=True))
            hessian = 2 * (left * right + slope * slope.T) * np.outer(duals, duals) + np.eye(len(duals))
            gradient = duals * (2 * np.diagonal(slope) - self.b / mu) - 1
            try:
                step = -np.linalg.solve(hessian, gradient)
            except np.linalg.LinAlgError:
                return duals
            decrement = float(np.sqrt(abs(step @ gradient)))
            if not np.isfinite(decrement):
                return duals
            near = decrement < CENTRED
            duals = duals * (1 + (1.0 if near else self._length(duals, step)) * step)
            if near:
                break
        return duals

    def _length(self, duals: Duals, step: Duals) -> float:
        """Return a share of the step, at most 1, with which λ stays clear of the boundary of λ > 0, ‖M‖_op < 1."""
        length = min(1.0, BACK / max(float(np.max(-step)), BACK))
        for _ in range(HALVINGS):
            if np.linalg.norm(self.matrix(duals * (1 + length / BACK * step)), ord=2) < 1:
                return length
            length /= 2
        return 0.0
