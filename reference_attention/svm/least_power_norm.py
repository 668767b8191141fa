"""ATT-SVM in another norm, in floats: min ‖p‖_q subject to (k_iα − k_it)·p ≥ 1 for every t ≠ α_i, 1 < q ≤ ∞.

For 1 < q < ∞ the solution is the limit direction of mirror descent with the potential ‖p‖_q^q/q. SLSQP solves the
strictly convex program min ‖p‖_q^q/q, Newton's method on the equations of the tight constraints refines the solution,
and it is accepted if the residual of its KKT conditions and the gap between ‖p‖_q and the dual value are small. For q =
∞ the problem is a linear program: the margin is unique, but solutions need not be.

References: Sun, Gatmiry, Ahn, Azizan, *A Unified Approach to Controlling Implicit Regularization via Mirror Descent*,
JMLR 2023; scipy.optimize (SLSQP, nnls, HiGHS).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.optimize import linprog, minimize

from reference_attention.errors import InvalidInput
from reference_attention.svm.nonnegative_least_squares import nonnegative_least_squares

ACCEPTED = 1e-9
"""Largest accepted KKT residual. A residual of this size changes the direction of the solution by about as much: far
less than the angles between iterates and this direction that are measured. Newton's method leaves residuals far below
it."""
NEAR = 1e-6
"""Distance of a margin from 1 up to which its constraint is tried as tight; whether it is, the KKT residual decides."""
NEWTON = 50
"""Largest number of steps of Newton's method; a handful is usually enough."""

Rows = Float64[np.ndarray, "m d"]
Vector = Float64[np.ndarray, "d"]


@dataclass(frozen=True, eq=False)
class LeastPowerNorm:
    """The solution p of ATT-SVM in the norm ‖·‖_q.

    Attributes:
        p: the solution, shape (d,).
        norm: q.
        margin: 1/‖p‖_q, the largest possible least margin of a point with ‖·‖_q = 1.
        residual: the relative residual of the KKT conditions at p, or the relative duality gap if that is larger; for a
            linear program (q = ∞) the gap or the largest violation of a constraint.
    """

    p: Vector
    norm: float
    margin: float
    residual: float

    @property
    def direction(self) -> Vector:
        """Return p/‖p‖, normalised in the Euclidean norm, in which angles between directions are measured."""
        return np.asarray(self.p / np.linalg.norm(self.p))


def difference_rows(keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"]) -> Rows:
    """Return the rows k_iα_i − k_it, t ≠ α_i, shape (n (T−1), d)."""
    others = np.arange(keys.shape[1]) != alpha[:, None]
    chosen = np.take_along_axis(keys, alpha[:, None, None], axis=1)
    return np.asarray((chosen - keys)[others])


def least_power_norm(
    keys: Float64[np.ndarray, "n T d"],
    alpha: Int64[np.ndarray, "n"],
    norm: float,
    feasible: Vector,
    accepted: float = ACCEPTED,
) -> LeastPowerNorm | None:
    """Solve ATT-SVM in the norm ‖·‖_q; return ``None`` if no solution is accepted.

    Args:
        keys: the keys, shape (n, T, d).
        alpha: the chosen tokens, shape (n,).
        norm: q, 1 < q ≤ ∞.
        feasible: a point that separates the chosen tokens, such as p_mm, shape (d,).
        accepted: the largest residual of an accepted solution.

    Raises:
        InvalidInput: a norm out of range, or a point that does not separate the chosen tokens.
    """
    if not norm > 1:
        raise InvalidInput(
            f"norm: {norm} must be above 1; at 1 the solution is not unique, and below 1 there is no norm."
        )
    rows = difference_rows(keys, alpha)
    least = float((rows @ feasible).min())
    if not least > 0:
        raise InvalidInput(f"feasible: the least margin of alpha is {least:g}; give a point where it is positive.")
    # Scaled so that the Euclidean solution has norm one, rows have about the size for which solvers are made.
    unit = float(np.linalg.norm(feasible)) / least
    p, residual = (
        _program(rows * unit, norm) if math.isinf(norm) else _power(rows * unit, norm, feasible / least / unit)
    )
    if math.isfinite(norm):
        # If rows have very different sizes, the KKT residual can be small far from the solution; the duality gap
        # cannot.
        residual = max(residual, duality_gap(rows * unit, norm, p))
    if not residual <= accepted:
        return None
    return LeastPowerNorm(p * unit, norm, 1 / float(np.linalg.norm(p * unit, ord=norm)), residual)


def kkt_residual(rows: Rows, norm: float, p: Vector) -> float:
    """Return the largest violation of the KKT conditions of min ψ(p) = ‖p‖_q^q/q subject to row_j·p ≥ 1.

    The conditions are: margins row_j·p ≥ 1, ∇ψ(p) = Σ λ_j row_j, and λ_j ≥ 0, positive only where the margin is 1. The
    λ is computed here, by non-negative least squares over the margins within :data:`NEAR` of 1, so the residual does
    not depend on how p was computed. λ_j times the distance of the margin from 1 counts as a violation, too. Violations
    of the equation for ∇ψ(p) are relative to ‖∇ψ(p)‖.
    """
    margins = rows @ p
    slope = _slope(p, norm)
    size = float(np.linalg.norm(slope))
    tight = margins <= 1 + NEAR
    if not tight.any() or not np.isfinite(slope).all() or size == 0:
        return math.inf
    duals, distance = nonnegative_least_squares(rows[tight].T, slope / size)
    return max(distance, float((1 - margins).max()), float((duals * np.abs(margins[tight] - 1)).max()))


def duality_gap(rows: Rows, norm: float, p: Vector) -> float:
    """Return the relative gap between ‖p‖_q and its lower bound by weak duality, Σλ_j/‖Σλ_j row_j‖_q', 1/q + 1/q' = 1.

    λ is computed as in :func:`kkt_residual`, and p is scaled to least margin 1. The gap is ∞ where weak duality gives
    no bound.
    """
    margins, slope = rows @ p, _slope(p, norm)
    tight, least = margins <= 1 + NEAR, float(margins.min())
    duals, distance = nonnegative_least_squares(rows[tight].T, slope)
    total = float(duals.sum())
    if not (least > 0 and total > 0 and math.isfinite(distance)):
        return math.inf
    above = float(np.linalg.norm(duals @ rows[tight], ord=norm / (norm - 1))) / total
    return above * float(np.linalg.norm(p, ord=norm)) / least - 1


def _slope(p: Vector, norm: float) -> Vector:
    """Return the gradient of ‖p‖_q^q/q."""
    return np.asarray(np.sign(p) * np.abs(p) ** (norm - 1))


def _power(rows: Rows, norm: float, start: Vector) -> tuple[Vector, float]:
    """Solve the program for 1 < q < ∞ by SLSQP and Newton's method; return p and its KKT residual."""
    optimum = minimize(
        lambda p: float((np.abs(p) ** norm).sum() / norm),
        start,
        jac=lambda p: _slope(p, norm),
        constraints={"type": "ineq", "fun": lambda p: rows @ p - 1, "jac": lambda p: rows},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-15},
    )
    tries = [_refine(rows, norm, optimum.x, near) for near in (NEAR, 1e-4, 1e-2)]
    return min([(optimum.x, kkt_residual(rows, norm, optimum.x)), *tries], key=lambda candidate: candidate[1])


def _refine(rows: Rows, norm: float, p: Vector, near: float) -> tuple[Vector, float]:
    """Refine p by Newton's method on ∇ψ(p) = Σ λ_j row_j, row_j·p = 1 for tight rows; return p and its KKT residual.

    ψ(p) is ‖p‖_q^q/q. The unknown is p if q ≥ 2 and z = ∇ψ(p) if q < 2, since z is a differentiable function of p in
    the first case, and p of z in the second. Rows count as tight if their margin is at most 1 + ``near``.
    """
    tight = rows[rows @ p <= 1 + near]
    duals, distance = nonnegative_least_squares(tight.T, _slope(p, norm))
    if not len(tight) or math.isinf(distance):
        return p, math.inf
    tight, duals = tight[duals > 0], duals[duals > 0]
    conjugate, d = norm / (norm - 1), len(p)
    unknown = p if norm >= 2 else _slope(p, norm)
    for _ in range(NEWTON):
        at, slope = (unknown, _slope(unknown, norm)) if norm >= 2 else (_slope(unknown, conjugate), unknown)
        power = norm if norm >= 2 else conjugate
        curvature = np.diag((power - 1) * np.abs(unknown) ** (power - 2))
        upper = [curvature, -tight.T] if norm >= 2 else [np.eye(d), -tight.T]
        lower = tight if norm >= 2 else tight @ curvature
        matrix = np.block([upper, [lower, np.zeros((len(tight), len(tight)))]])
        residuals = np.concatenate([slope - tight.T @ duals, tight @ at - 1])
        try:
            step = np.linalg.lstsq(matrix, -residuals, rcond=None)[0]
        except np.linalg.LinAlgError:  # NaN or infinite entries
            return p, math.inf
        unknown, duals = unknown + step[:d], duals + step[d:]
        if not np.isfinite(unknown).all():
            return p, math.inf
        if np.abs(step).max() <= 1e-15 * np.abs(unknown).max():
            break
    point = unknown if norm >= 2 else _slope(unknown, conjugate)
    return point, kkt_residual(rows, norm, point)


def _program(rows: Rows, norm: float) -> tuple[Vector, float]:
    """Solve min s subject to rows·p ≥ 1, −s ≤ p_j ≤ s, the problem for q = ∞; return p and its residual.

    The residual is the gap between s and the dual value, or the largest violation of a constraint if that is larger.
    """
    m, d = rows.shape
    box = np.block([[np.eye(d), -np.ones((d, 1))], [-np.eye(d), -np.ones((d, 1))]])
    upper = np.vstack([np.hstack([-rows, np.zeros((m, 1))]), box])
    bounds = np.concatenate([-np.ones(m), np.zeros(2 * d)])
    optimum = linprog(np.append(np.zeros(d), 1.0), upper, bounds, bounds=(None, None), method="highs")
    if optimum.status != 0:
        return np.zeros(d), math.inf
    p = optimum.x[:d]
    duals = np.maximum(-optimum.ineqlin.marginals[:m], 0.0)
    # Weak duality: Σ λ_j / ‖Σ λ_j row_j‖_1 is a lower bound of the least ‖p‖_∞.
    below = float(duals.sum() / max(np.abs(duals @ rows).sum(), 1e-300))
    least = float((rows @ p).min())
    return p, max(float(np.abs(p).max() / max(least, 1e-300)) / max(below, 1e-300) - 1, 1 - least, 0.0)
