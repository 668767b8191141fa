"""The number 1 − cos of the angle between a point and a direction, without cancellation at tiny angles.

It is computed as half the squared distance between the unit vectors of the point and of the direction.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64


def one_minus_cosine(p: Float64[np.ndarray, "d"], unit: Float64[np.ndarray, "d"]) -> float:
    """Return 1 − cos of the angle between a point p ≠ 0 and the unit vector ``unit``."""
    between = p / np.linalg.norm(p) - unit
    return float(between @ between) / 2


def one_minus_cosine_along(
    points: Float64[np.ndarray, "r ..."], norms: Float64[np.ndarray, "r ..."], unit: Float64[np.ndarray, "..."]
) -> Float64[np.ndarray, "r ..."]:
    """Return 1 − cos of the angles between points and unit vectors; NaN where a point is 0.

    Shapes, with any batch axes ``*b``: points (r, *b, d), their norms ‖p‖, which the caller knows, (r, *b), and unit
    vectors (*b, d).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = points / norms[..., None] - unit
    return np.asarray((difference * difference).sum(axis=-1) / 2)
