"""Gradient descent on the factors (K, Q) of W = K Qᵀ: K ← K − η ∇L(W) Q and, from the old K, Q ← Q − η ∇L(W)ᵀ K.

Steps are computed in logarithms, as in :mod:`.descent`. In normalized steps both gradients, ∇_K = ∇L(W) Q and ∇_Q =
∇L(W)ᵀ K, are divided by their joint norm (‖∇_K‖² + ‖∇_Q‖²)^½. Dividing each gradient by its own norm would not be
gradient descent, and would not conserve KᵀK − QᵀQ even in the limit of small steps.

References: *Transformers as Support Vector Machines*, (KQ-ERM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.descent import Stop
from reference_attention.training.factorization import (
    FactorRule,
    Keys,
    Layout,
    Queries,
    Weights,
    checked_factors,
    factor_gradients,
    factored_slope,
    log_curvatures,
    safe_step_of,
)
from reference_attention.training.iteration import LARGEST_LOG_STEP, Gradient, signed_excess


@dataclass(frozen=True, eq=False)
class FactoredTrajectory:
    """The r recorded iterates of a descent on the factors (K, Q) of W = K Qᵀ.

    Attributes:
        K, Q: the iterates, (r, d, m) and (r, e, m).
        iterations: the number t of steps before each record, (r,).
        log_steps: log η of the step that follows each recorded iterate, (r,).
        log_gradient_norm: log of the joint norm (‖∇_K‖² + ‖∇_Q‖²)^½ of the gradients in K and Q, (r,); −inf where both
            are exactly zero.
        sign: sign of L(W) − L_opt, (r,), where L_opt is the risk if all weight is on the optimal tokens.
        log_risk: log |L(W) − L_opt|, (r,).
        stop: ``STEPS``, or ``OVERFLOW`` if a step overflowed; from there on the iterates do not move.
    """

    K: Keys
    Q: Queries
    iterations: Int64[np.ndarray, "r"]
    log_steps: Float64[np.ndarray, "r"]
    log_gradient_norm: Float64[np.ndarray, "r"]
    sign: Float64[np.ndarray, "r"]
    log_risk: Float64[np.ndarray, "r"]
    stop: Stop

    @cached_property
    def W(self) -> Weights:
        """Return K Qᵀ, (r, d, e)."""
        return np.asarray(self.K @ np.swapaxes(self.Q, 1, 2))


def factored_gradient_descent(
    data: QueryDataset,
    K: ArrayLike,
    Q: ArrayLike,
    *,
    steps: int,
    log_step: float | None = None,
    length: float | None = None,
    gradient: Gradient = risk.scaled_gradient,
    rule: FactorRule = factor_gradients,
    record_every: int = 1,
) -> FactoredTrajectory:
    """Run gradient descent on the factors (K, Q) of W; by default each step has a size that provably lowers the risk.

    Args:
        data: tokens, queries, labels, head and loss.
        K: the start of K, (d, m), for any m.
        Q: the start of Q, (e, m).
        steps: number of steps.
        log_step: log η of a constant step size; by default :func:`.factorization.log_safe_step` at each iterate.
        length: the length of normalized steps, in place of ``log_step``: η is this length divided by the joint norm of
            both gradients.
        gradient: the function that computes ∇L in vec(W): the reference, a kernel or a planted fault.
        rule: the function that turns ∇L(W) into gradients in K and Q.
        record_every: k, to record every k-th iterate, besides the first and the last.

    Raises:
        InvalidInput: a start does not fit the data, steps or record_every are too small, a step is not a number, or
            both ``log_step`` and ``length`` are given.

    >>> import numpy as np
    >>> from theorems import QueryDataset, factored_gradient_descent
    >>> data = QueryDataset(X=[[[1, 2], [2, -1], [0, 1]]], queries=[[1, 0.5]], Y=[1], v=[1, 0])
    >>> run = factored_gradient_descent(data, K=np.eye(2), Q=np.zeros((2, 2)), steps=100, length=0.5)
    >>> bool(run.log_risk[-1] < run.log_risk[0] - 100), data.problem.optimal
    (True, array([1]))
    """
    K, Q = checked_factors(data, K, Q)
    if steps < 0 or record_every < 1:
        raise InvalidInput("steps: steps must be at least 0 and record_every at least 1.")
    if log_step is not None and (length is not None or math.isnan(log_step)):
        raise InvalidInput("log_step: give the logarithm of a constant step, or a length, or neither.")
    if length is not None and not (math.isfinite(length) and length > 0):
        raise InvalidInput(f"length: {length} is not a positive finite number; give the length of one step.")
    layout, problem = Layout(K.shape[0], Q.shape[0], K.shape[1]), data.problem
    field, constants = factored_slope(problem, layout, gradient, rule).field, log_curvatures(problem)
    iterations = np.unique(np.append(np.arange(0, steps + 1, record_every), steps)).astype(np.int64)
    points, log_sizes = np.empty((len(iterations), (layout.d + layout.e) * layout.m)), np.empty((len(iterations), 2))
    point, record, stop = layout.join(K, Q), 0, Stop.STEPS
    for t in range(steps + 1):
        log_scale, direction = field(point)
        size = math.sqrt(direction @ direction)
        log_norm = log_scale + math.log(size) if size > 0 else -math.inf
        if length is not None:
            log_taken = math.log(length) - log_norm if size > 0 else -math.inf
        elif log_step is not None:
            log_taken = log_step
        else:
            log_taken = safe_step_of(*constants, *layout.split(point), log_norm)
        if t == iterations[record]:
            points[record], log_sizes[record] = point, (log_taken, log_norm)
            record += 1
        if size > 0 and stop is Stop.STEPS:
            next_point = point
            if log_taken + log_scale <= LARGEST_LOG_STEP:
                next_point = point - math.exp(log_taken + log_scale) * direction
            if next_point is point or not np.isfinite(next_point).all():
                stop = Stop.OVERFLOW
            else:
                point = next_point
    sign, log_risk = signed_excess(problem.keys, problem.scores, problem.loss, layout.weights(points))
    return FactoredTrajectory(*layout.split(points), iterations, log_sizes[:, 0], log_sizes[:, 1], sign, log_risk, stop)
