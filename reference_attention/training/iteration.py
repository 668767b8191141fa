"""The loops of (normalized) gradient descent, for a single start and for a batch of starts.

References: *Max-Margin Token Selection in Attention Mechanism*, (GD); Appendix E.1 (normalized GD).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention import risk
from reference_attention.loss import Array, Loss
from reference_attention.risk import ScaledGradient
from reference_attention.span import Span
from reference_attention.training.batched_gradient import BatchedGradient
from reference_attention.training.derivatives import (
    BatchField,
    GradientField,
    Point,
    gradient_field,
)

Gradient = Callable[[Array, Array, Loss, Array], ScaledGradient]
"""A function (keys, scores, loss, p) → ∇L, with the shapes of :func:`reference_attention.risk.scaled_gradient`."""

LARGEST_LOG_STEP = 700.0
"""Logarithm of the largest factor by which a direction is multiplied; a step with a larger factor counts as an
overflow."""

Iterates = tuple[
    Float64[np.ndarray, "r *b d"], Float64[np.ndarray, "r *b"], Float64[np.ndarray, "r *b"], Bool[np.ndarray, "*b"]
]
"""The recorded points, the logarithms of the sums of step sizes so far, log ‖∇L‖, and a mask of the starts from which
no step overflowed."""


def single_field(
    keys: Float64[np.ndarray, "n T d"],
    scores: Float64[np.ndarray, "n T"],
    loss: Loss,
    gradient: Gradient,
    span: Span | None = None,
) -> GradientField:
    """Return the gradient of one problem as a function of p, (d,), or of the coordinates of p in ``span``."""
    if gradient is risk.scaled_gradient:
        return gradient_field(keys, scores, loss, span)
    if span is not None:
        raise ValueError("span: only the reference's own gradient is known to stay in the span; give no span.")

    def field(p: Point) -> tuple[float, Point]:
        slope = gradient(keys, scores, loss, p)
        return float(slope.log_scale), np.asarray(slope.direction)

    return field


def batch_field(
    keys: Float64[np.ndarray, "... n T d"],
    scores: Float64[np.ndarray, "... n T"],
    loss: Loss,
    gradient: Gradient,
    batch: tuple[int, ...],
) -> BatchField:
    """Return the gradients of one or several problems as a function of a batch of points, (b, d)."""

    def flat(array: Float64[np.ndarray, "..."], axes: int) -> Float64[np.ndarray, "..."]:
        shape = array.shape[-axes:]
        return np.broadcast_to(array, (*batch, *shape)).reshape(-1, *shape)

    if gradient is risk.scaled_gradient:
        return BatchedGradient(flat(keys, 3), flat(scores, 2), loss)
    # If all starts share a problem, it is passed once and not repeated for each start: that is cheaper for a kernel.
    batch_keys = keys if keys.ndim == 3 else flat(keys, 3)
    batch_scores = scores if scores.ndim == 2 else flat(scores, 2)

    def field(p: Float64[np.ndarray, "b d"]) -> tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b d"]]:
        slope = gradient(batch_keys, batch_scores, loss, p)
        return np.asarray(slope.log_scale), np.asarray(slope.direction)

    return field


def iterate(
    field: GradientField, p: Point, log_step: float, normalized: bool, iterations: Int64[np.ndarray, "r"]
) -> Iterates:
    """Run (normalized) gradient descent from one start, and return the iterates at the given numbers of steps."""
    records = len(iterations)
    points, log_norms, log_times = np.empty((records, len(p))), np.empty(records), np.empty(records)
    log_time, record, ok = -math.inf, 0, True
    for t in range(int(iterations[-1]) + 1):
        log_scale, direction = field(p)
        length = math.sqrt(direction @ direction)
        log_norm = log_scale + math.log(length) if length > 0 else -math.inf
        if t == iterations[record]:
            points[record], log_norms[record], log_times[record] = p, log_norm, log_time
            record += 1
        log_taken = log_step - log_norm if normalized and length > 0 else log_step
        if length > 0 and ok:
            log_factor = log_taken + log_scale
            ok = log_factor <= LARGEST_LOG_STEP
            if ok:
                next_point = p - math.exp(log_factor) * direction
                ok = bool(np.isfinite(next_point).all())
                p = next_point if ok else p
        if ok and (length > 0 or not normalized):
            high, low = max(log_time, log_taken), min(log_time, log_taken)
            log_time = high + math.log1p(math.exp(low - high)) if low > -math.inf else high
    return points, log_times, log_norms, np.asarray(ok)


def iterate_batch(
    field: BatchField,
    p: Float64[np.ndarray, "b d"],
    log_step: Float64[np.ndarray, "b"],
    normalized: bool,
    iterations: Int64[np.ndarray, "r"],
) -> Iterates:
    """Run (normalized) gradient descent from a batch of starts; return the iterates at the given numbers of steps."""
    records = len(iterations)
    points = np.empty((records, *p.shape))
    log_norms, log_times = np.empty((records, len(p))), np.empty((records, len(p)))
    log_time, record, ok = np.full(len(p), -math.inf), 0, np.ones(len(p), dtype=bool)
    ones = np.ones(p.shape[1])
    for t in range(int(iterations[-1]) + 1):
        log_scale, direction = field(p)
        length = np.sqrt(np.vecdot(direction, direction))
        unmoved = None if length.all() else length == 0
        if unmoved is not None:
            log_scale, length = np.where(unmoved, -math.inf, log_scale), np.where(unmoved, 1.0, length)
        log_length = np.log(length)
        if t == iterations[record]:
            points[record], log_times[record], log_norms[record] = p, log_time, log_scale + log_length
            record += 1
        if normalized:
            log_factor = log_step - log_length
            log_taken = log_factor - log_scale
            if unmoved is not None:
                log_taken[unmoved] = -math.inf
        else:
            log_factor, log_taken = log_step + log_scale, log_step
        ok &= log_factor <= LARGEST_LOG_STEP
        next_points = p - np.exp(log_factor)[:, None] * direction
        ok &= np.isfinite(
            next_points @ ones
        )  # the sum is finite if all terms are, except at the end of float64's range
        longer = np.logaddexp(log_time, log_taken)
        p, log_time = (
            (next_points, longer)
            if ok.all()
            else (np.where(ok[:, None], next_points, p), np.where(ok, longer, log_time))
        )
    return points, log_times, log_norms, ok


def signed_excess(
    keys: Float64[np.ndarray, "... n T d"],
    scores: Float64[np.ndarray, "... n T"],
    loss: Loss,
    points: Float64[np.ndarray, "r *b d"],
    budget: int = 2_000_000,
    alpha: Int64[np.ndarray, "... n"] | None = None,
) -> tuple[Float64[np.ndarray, "r *b"], Float64[np.ndarray, "r *b"]]:
    """Return sign and logarithm of L(p) − L_α at every recorded point, L_α the risk if all weight is on α.

    Args:
        keys: K of one problem, or of several problems with the batch axes ``*b`` of the points.
        scores: γ, with the same batch axes as the keys.
        loss: ℓ.
        points: the r recorded points, (r, *b, d).
        budget: largest number of entries of key differences that are computed at a time, to limit memory.
        alpha: the tokens α of L_α; by default the optimal tokens.
    """
    optimal = scores.argmax(axis=-1) if alpha is None else alpha
    at_once = max(1, budget * len(points) // max(1, points.size * keys.shape[-3] * keys.shape[-2]))
    parts = [
        risk.log_excess_risk(keys, scores, loss, points[k : k + at_once], optimal)
        for k in range(0, len(points), at_once)
    ]
    return np.concatenate([sign for sign, _ in parts]), np.concatenate([size for _, size in parts])
