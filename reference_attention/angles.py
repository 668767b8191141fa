"""1 − cos between a point and a direction, from the difference of unit vectors: it does not cancel
where 1 − cos is tiny."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64


def one_minus_cosine(p: Float64[np.ndarray, "d"], unit: Float64[np.ndarray, "d"]) -> float:
    """1 − cos∠(p, unit) of one point p ≠ 0 and a unit vector."""
    between = p / np.linalg.norm(p) - unit
    return float(between @ between) / 2


def one_minus_cosine_along(
    points: Float64[np.ndarray, "r ..."], norms: Float64[np.ndarray, "r ..."], unit: Float64[np.ndarray, "..."]
) -> Float64[np.ndarray, "r ..."]:
    """1 − cos∠(p, unit) of many points (r, *b, d) of known norms (r, *b), with unit vectors (*b, d); NaN at p = 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = points / norms[..., None] - unit
    return np.asarray((apart * apart).sum(axis=-1) / 2)
