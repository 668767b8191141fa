"""Arithmetic of vectors x = e^{log_scale} · direction, in which momentum neither underflows nor overflows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.risk import ScaledGradient

Vector = Float64[np.ndarray, "*b d"]
Scalar = Float64[np.ndarray, "*b"]

NOTHING = -1e300
"""The log scale that represents a zero vector, finite because −∞ − (−∞) would be NaN."""


def of(gradient: ScaledGradient) -> ScaledGradient:
    """Rescale a vector so that its ``direction`` has the largest entry ±1; 0 gets the log scale :data:`NOTHING`."""
    x = np.asarray(gradient.direction)
    largest = np.abs(x).max(axis=-1)
    some = largest > 0
    size = np.where(some, largest, 1.0)
    log_scale = np.where(some, np.where(some, gradient.log_scale, 0.0) + np.log(size), NOTHING)
    return ScaledGradient(log_scale, x / size[..., None])


def total(a: float, x: ScaledGradient, b: float, y: ScaledGradient) -> ScaledGradient:
    """Return a x + b y for vectors x and y that :func:`of` or this function returned."""
    top = np.maximum(x.log_scale, y.log_scale)
    left, right = (np.exp(np.maximum(gradient.log_scale - top, NOTHING))[..., None] for gradient in (x, y))
    return of(ScaledGradient(top, a * left * x.direction + b * right * y.direction))


def size_of(x: ScaledGradient) -> Scalar:
    """Return the norm of ``x.direction``, or 1 where this norm is 0."""
    length = np.sqrt((x.direction * x.direction).sum(axis=-1))
    return np.asarray(np.where(length > 0, length, 1.0))


def times(log_factor: float | Scalar, x: ScaledGradient) -> Vector:
    """Return e^{log_factor} x as plain floats; overflow gives infinity."""
    return np.asarray(np.exp(np.asarray(x.log_scale + log_factor))[..., None] * x.direction)
