"""Factors (K, Q) of the key-query weights W = K Qᵀ as a point of R^{(d+e)m}: gradient, Hessian, walls, safe steps.

The gradients in K and Q are ∇_K = ∇L(W) Q and ∇_Q = ∇L(W)ᵀ K. As ∇L is given as a log scale and a direction, the
products with the factors add no cancellation or underflow. Along a straight line in (K, Q) logits are quadratic; a
*wall* is a place where another term becomes the largest of ∇L (:mod:`.wall_distance`).

References: *Transformers as Support Vector Machines*, (KQ-ERM).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem, checked_array
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.derivatives import Point, Square, newton_field
from reference_attention.training.iteration import Gradient, single_field
from reference_attention.training.slope import UNSEEN, Slope
from reference_attention.training.wall_distance import ROOM, WallDistance

Keys = Float64[np.ndarray, "*b d m"]
Queries = Float64[np.ndarray, "*b e m"]
Weights = Float64[np.ndarray, "*b d e"]
FactorRule = Callable[[Weights, Keys, Queries], tuple[Keys, Queries]]
"""A function (∇L(W), K, Q) → (gradient in K, gradient in Q)."""


def factor_gradients(gradient: Weights, K: Keys, Q: Queries) -> tuple[Keys, Queries]:
    """Return ∇_K = ∇L(W) Q and ∇_Q = ∇L(W)ᵀ K; if ``gradient`` is c∇L(W) for a number c, return c∇_K and c∇_Q."""
    return gradient @ Q, np.swapaxes(gradient, -1, -2) @ K


def imbalance(K: Keys, Q: Queries) -> Float64[np.ndarray, "*b m m"]:
    """Return the imbalance KᵀK − QᵀQ, which the gradient flow on (K, Q) conserves."""
    return np.asarray(np.swapaxes(K, -1, -2) @ K - np.swapaxes(Q, -1, -2) @ Q)


def checked_factors(data: QueryDataset, K: ArrayLike, Q: ArrayLike) -> tuple[Keys, Queries]:
    """Return K (d, m) and Q (e, m) as read-only float64 arrays.

    Raises:
        InvalidInput: the shapes do not fit the data or each other, or an entry is NaN or infinite.
    """
    d, e = data.shape
    K = checked_array("K", K, (d, "m"))
    return K, checked_array("Q", Q, (e, K.shape[1]))


@dataclass(frozen=True)
class Layout:
    """The layout of K, (d, m), and Q, (e, m), in a vector of length (d + e) m (a point): row by row, K first."""

    d: int
    e: int
    m: int

    def join(self, K: Keys, Q: Queries) -> Float64[np.ndarray, "*b k"]:
        """Return the point, or points, of length (d + e) m that hold K and Q."""
        batch = K.shape[:-2]
        return np.concatenate([K.reshape(*batch, -1), Q.reshape(*batch, -1)], axis=-1)

    def split(self, points: Float64[np.ndarray, "*b k"]) -> tuple[Keys, Queries]:
        """Return the K and Q that a point, or each of several points, consists of."""
        batch, at = points.shape[:-1], self.d * self.m
        return points[..., :at].reshape(*batch, self.d, self.m), points[..., at:].reshape(*batch, self.e, self.m)

    def weights(self, points: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b de"]:
        """Return vec(K Qᵀ) of points, (*b, d·e)."""
        K, Q = self.split(points)
        return np.asarray((K @ np.swapaxes(Q, -1, -2)).reshape(*points.shape[:-1], -1))

    def derivative(self, point: Point) -> Float64[np.ndarray, "de k"]:
        """Return the Jacobian of vec(K Qᵀ) with respect to the point (K, Q), from dW = dK Qᵀ + K dQᵀ."""
        K, Q = self.split(point)
        of_q = np.einsum("bB,ak->abBk", np.eye(self.e), K).reshape(self.d * self.e, self.e * self.m)
        return np.concatenate([np.kron(np.eye(self.d), Q), of_q], axis=1)


def factored_slope(
    problem: Problem, layout: Layout, gradient: Gradient = risk.scaled_gradient, rule: FactorRule = factor_gradients
) -> Slope:
    """Return L(K Qᵀ) as a function of points (K, Q), in the form that a solver of its gradient flow needs."""
    of_weights = single_field(problem.keys, problem.scores, problem.loss, gradient)
    hessian = newton_field(problem.keys, problem.scores, problem.loss)
    exact = gradient is risk.scaled_gradient and rule is factor_gradients
    rows = (problem.keys - problem.keys[:, :1]).reshape(-1, problem.d)

    def field(point: Point) -> tuple[float, Point]:
        log_scale, direction = of_weights(layout.weights(point))
        return log_scale, layout.join(*rule(direction.reshape(layout.d, layout.e), *layout.split(point)))

    def newton(point: Point) -> tuple[float, Point, Square]:
        log_scale, direction, curvature = hessian(layout.weights(point))
        by_point, G = layout.derivative(point), direction.reshape(layout.d, layout.e)
        # The second derivative has two parts: 2 ⟨∇L, dK dQᵀ⟩, and the second derivative of L along dW = dK Qᵀ + K dQᵀ.
        at, cross = layout.d * layout.m, np.kron(G, np.eye(layout.m))
        second = by_point.T @ curvature @ by_point
        second[:at, at:] += cross
        second[at:, :at] += cross.T
        return log_scale, layout.join(*rule(G, *layout.split(point))), second

    def rank(point: Point) -> int:
        return int(np.linalg.matrix_rank(rows @ layout.derivative(point), rtol=UNSEEN))

    return Slope(
        field=field,
        newton=newton if exact else None,
        arc=QuadraticWallDistance(problem, layout).arc,
        scale=math.sqrt(float(np.abs(problem.keys).max()) or 1.0),
        unit=2.0 ** math.floor(math.log2(problem.key_scale) / 2),
        rank=rank,
    )


class QuadraticWallDistance(WallDistance):
    """The distances from points (K, Q) to walls, where another term becomes the largest of ∇L.

    Along a straight line in (K, Q) logits are quadratic, and so is the amount by which one logit gains on another.
    """

    def __init__(self, problem: Problem, layout: Layout) -> None:
        """Store the problem, and the layout of (K, Q) in a point."""
        super().__init__(problem)
        self._layout = layout

    def arc(self, p: Point, velocity: Point) -> float:
        """Return the length from p along ``velocity`` to where another term of ∇L is e^ROOM times the largest at p."""
        layout, (K, Q), (U, V) = self._layout, self._layout.split(p), self._layout.split(velocity)
        differences, logs = self.terms(layout.weights(p))
        rates, bends = (
            (differences.rows @ weight_step.ravel()).reshape(logs.shape) for weight_step in (U @ Q.T + K @ V.T, U @ V.T)
        )
        top = np.unravel_index(logs.argmax(), logs.shape)
        if logs[top] == -math.inf:
            return math.inf
        return float(first_passage(logs[top] - logs + ROOM, rates - rates[top], bends - bends[top]).min())


def first_passage(
    gap: Float64[np.ndarray, "*b"], rate: Float64[np.ndarray, "*b"], bend: Float64[np.ndarray, "*b"]
) -> Float64[np.ndarray, "*b"]:
    """Return the least s > 0 with rate s + bend s² = gap, for gap > 0; infinite where there is none."""
    with np.errstate(all="ignore"):
        discriminant = rate * rate + 4 * bend * gap
        # The root 2 gap/(rate + √discriminant) is computed without cancellation, and is the smaller one if both are
        # positive.
        below = rate + np.sqrt(np.maximum(discriminant, 0.0))
        return np.asarray(np.where((discriminant >= 0) & (below > 0), 2 * gap / below, math.inf))


def log_curvatures(problem: Problem) -> tuple[float, float]:
    """Return log L̂ and log c, where ∇L(W) is L̂-Lipschitz and ‖∇L(W)‖_F ≤ c; −∞ if ∇L = 0 everywhere.

        L̂ = (1/n) Σ_i (M0 R_i² D_i² + 2 M1 R_i D_i²)/16,    c = (1/n) Σ_i M1 R_i D_i/4,

    where R_i is the range of the scores of input i, D_i the diameter of its keys, and M0 and M1 are bounds of |ℓ''| and
    |ℓ'| on that range. Derivation: :mod:`theorems.transformers_as_svms.factored_descent`.
    """
    curved, steep = [], []
    for keys, scores in zip(problem.keys, problem.scores, strict=True):
        low, high = float(scores.min()), float(scores.max())
        with np.errstate(divide="ignore"):
            r = math.log(high - low) if high > low else -math.inf
            diameter = float(max(np.linalg.norm(keys - key, axis=1).max() for key in keys))
            d = math.log(diameter) if diameter > 0 else -math.inf
        m0, m1 = problem.loss.log_lipschitz(low, high), problem.loss.log_bound(low, high)
        curved.append(float(np.logaddexp(m0 + 2 * r, math.log(2) + m1 + r)) + 2 * d - math.log(16))
        steep.append(m1 + r + d - math.log(4))
    log_n = math.log(problem.n)
    return float(np.logaddexp.reduce(curved)) - log_n, float(np.logaddexp.reduce(steep)) - log_n


def log_safe_step(problem: Problem, K: Keys, Q: Queries, log_gradient: float) -> float:
    """Return log η of a step size η at which a gradient step from (K, Q) provably lowers the risk.

    With L̂ and c of :func:`log_curvatures`, M = max(‖K‖_op, ‖Q‖_op), g the joint norm of the gradients in K and Q, and
    r = g/(2 L̂ M² + c), the step size is η = 1/(2 L̂ (M + r)² + c). Indeed the gradient in (K, Q) has at a point at
    most the local Lipschitz constant 2 L̂ M² + c, and M grows by at most ηg ≤ r along the step. So L falls by at least
    ηg²/2. If 2 L̂ M² + c = 0, then the gradient is 0, every step has the same effect, and log η = 0.

    Args:
        problem: the problem with the keys vec(x_it z_iᵀ).
        K: the factor K, (d, m).
        Q: the factor Q, (e, m).
        log_gradient: log g, g = (‖∇_K‖² + ‖∇_Q‖²)^½ at (K, Q).
    """
    log_smooth, log_steep = log_curvatures(problem)
    return safe_step_of(log_smooth, log_steep, K, Q, log_gradient)


def safe_step_of(log_smooth: float, log_steep: float, K: Keys, Q: Queries, log_gradient: float) -> float:
    """Return :func:`log_safe_step`, given the results log L̂ and log c of :func:`log_curvatures`."""
    size = max(float(np.linalg.norm(K, 2)), float(np.linalg.norm(Q, 2)))

    def log_constant(log_size: float) -> float:
        return float(np.logaddexp(math.log(2) + log_smooth + 2 * log_size, log_steep))

    log_size = math.log(size) if size > 0 else -math.inf
    at_point = log_constant(log_size)
    if at_point == -math.inf:
        return 0.0
    return -log_constant(float(np.logaddexp(log_size, log_gradient - at_point)))


def refuse_start(norm: float, begin: float) -> None:
    """Refuse a final norm of a flow that is not finite, or not larger than the norm of its start, ``begin``.

    Raises:
        InvalidInput: the norm is not finite or not larger than ``begin``.
    """
    if not (math.isfinite(norm) and norm > begin):
        raise InvalidInput(f"norm: {norm:g} must be finite and larger than the norm {begin:g} of (K, Q).")
