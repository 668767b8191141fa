"""Wrong gradients whose errors are visible in the numbers of a figure."""

from __future__ import annotations

import numpy as np

from reference_attention import risk
from reference_attention.loss import Array, Loss
from reference_attention.risk import ScaledGradient


def turned(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Return the gradient plus half of itself with shifted coordinates, so that it points about half a radian off."""
    right = risk.scaled_gradient(keys, scores, loss, p)
    direction = np.asarray(right.direction)
    return ScaledGradient(
        right.log_scale,
        direction + 0.5 * np.roll(direction, 1, axis=-1) * np.array([-1.0] + [1.0] * (direction.shape[-1] - 1)),
    )


def of_stretched_keys(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Return the gradient for keys whose second coordinates are doubled."""
    return risk.scaled_gradient(keys * np.array([1.0, 2.0]), scores, loss, p)


def without_the_second_input(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Return the gradient without one input, for figures in which runs with :func:`turned` still end at p_mm."""
    return risk.scaled_gradient(np.delete(keys, 1, axis=0), np.delete(scores, 1, axis=0), loss, p)


def in_single_precision(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Return the gradient by the textbook formula in float32, which is 0 once the softmax saturates."""
    K, gamma = np.float32(keys), np.float32(scores)
    weights = np.float32(risk.softmax_weights(keys, p))
    mean = np.sum(weights * gamma, axis=-1, keepdims=True)
    slopes = -np.exp(np.float32(loss.log_slope(np.float64(mean))))
    direction = np.mean(np.sum((slopes * weights * (gamma - mean))[..., None] * K, axis=-2), axis=-2)
    return ScaledGradient(np.zeros(direction.shape[:-1]), np.float64(direction))
