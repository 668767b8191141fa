"""Constants and functions of float64 that more than one module needs."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

EPS = 2.0**-52
"""Spacing of float64 at 1: twice the unit roundoff."""


def log_expm1(x: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Return log(e^x − 1) for x > 0, without overflow, and accurate for small x."""
    return np.where(x > 30, x, np.log(np.expm1(np.minimum(x, 30.0))))
