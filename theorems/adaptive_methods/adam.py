"""Adam without ε, with or without bias correction: the descent, and its moments in a unit that prevents underflow.

With the gradient g_t at W(t), M_t = β1 M_{t−1} + (1−β1) g_t, V_t = β2 V_{t−1} + (1−β2) g_t², M_{−1} = V_{−1} = 0, and
W(t+1) = W(t) − η_t M_t/√V_t entry by entry, where M/√V is 0 if V is 0; with bias correction the step is multiplied by
√(1 − β2^{t+1})/(1 − β1^{t+1}).

References: Kingma, Ba, *Adam*, ICLR 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.training.derivatives import BatchField

Batch = Float64[np.ndarray, "b d"]


@dataclass(frozen=True)
class Betas:
    """The decay rates β1, β2 of the moments, and whether steps have the bias correction."""

    first: float
    second: float
    corrected: bool = False


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments M and √V of b runs in the unit e^{log_scale}, so that squares of small gradients do not underflow.

    Attributes:
        log_scale: the logarithm of each run's unit, (b,).
        mean: M, (b, d).
        root: √V, (b, d).
    """

    log_scale: Float64[np.ndarray, "b"]
    mean: Batch
    root: Batch


def no_moments(start: Batch) -> Moments:
    """Return moments of 0."""
    return Moments(np.full(len(start), -math.inf), np.zeros_like(start), np.zeros_like(start))


def next_moments(
    moments: Moments, log_scale: Float64[np.ndarray, "b"], gradient: Batch, betas: Betas, t: int
) -> Moments:
    """Return the moments after step t = 0, 1, …, whose gradient is e^{log_scale}·``gradient``."""
    top, decay, new = in_one_unit(moments, log_scale)
    mean = betas.first * decay * moments.mean + (1 - betas.first) * new * gradient
    root = np.hypot(math.sqrt(betas.second) * decay * moments.root, math.sqrt(1 - betas.second) * new * gradient)
    return in_units_of_the_largest(Moments(top, mean, root))


def in_one_unit(moments: Moments, log_scale: Float64[np.ndarray, "b"]) -> tuple[Any, Any, Any]:
    """Return the logarithm of a common unit, and the units of moments and gradient as multiples of this unit."""
    top = np.maximum(moments.log_scale, log_scale)
    top = np.where(np.isfinite(top), top, 0.0)
    return top, np.exp(moments.log_scale - top)[:, None], np.exp(log_scale - top)[:, None]


def in_units_of_the_largest(moments: Moments) -> Moments:
    """Return the moments in the unit of the largest entry of √V."""
    size = moments.root.max(axis=-1)
    with np.errstate(divide="ignore"):
        log_scale = np.where(size > 0, moments.log_scale + np.log(size), -math.inf)
    unit = np.where(size > 0, size, 1.0)[:, None]
    return Moments(log_scale, moments.mean / unit, moments.root / unit)


def adam_direction(moments: Moments, betas: Betas, t: int) -> Batch:
    """Return M/√V of step t = 0, 1, …, with bias correction if ``betas.corrected``; 0 where V is 0."""
    moves = moments.root > 0
    ratio = np.where(moves, moments.mean / np.where(moves, moments.root, 1.0), 0.0)
    if not betas.corrected:
        return ratio
    return np.asarray(ratio * (math.sqrt(1 - betas.second ** (t + 1)) / (1 - betas.first ** (t + 1))))


NextMoments = Callable[[Moments, Float64[np.ndarray, "b"], Batch, Betas, int], Moments]
Direction = Callable[[Moments, Betas, int], Batch]


def adam_descent(
    field: BatchField,
    start: Batch,
    *,
    lengths: Float64[np.ndarray, "t"],
    betas: Betas,
    following: NextMoments = next_moments,
    direction: Direction = adam_direction,
) -> Float64[np.ndarray, "r b d"]:
    """Run Adam with the gradients that ``field`` returns, from several starts at once, and return all iterates.

    Args:
        field: points (b, d) → log scales (b,) and directions (b, d) of the gradients.
        start: the starts W(0) of b runs, (b, d).
        lengths: the step lengths η_t, (t,).
        betas: the decay rates β1, β2, and whether there is bias correction.
        following: the function that updates the moments.
        direction: the function that computes a step from the moments.
    """
    points = np.empty((len(lengths) + 1, *start.shape))
    points[0], moments = start, no_moments(start)
    for t, length in enumerate(lengths.tolist()):
        log_scale, gradient = field(points[t])
        moments = following(moments, log_scale, gradient, betas, t)
        points[t + 1] = points[t] - length * direction(moments, betas, t)
    return points
