"""Non-negative least squares, guarded: SciPy's ends the interpreter where there are no columns."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from scipy.optimize import nnls


def nonnegative_least_squares(
    matrix: Float64[np.ndarray, "k m"], target: Float64[np.ndarray, "k"]
) -> tuple[Float64[np.ndarray, "m"], float]:
    """Return argmin ‖A u − b‖ over u ≥ 0 and the residual ‖A u − b‖; zeros and ∞ where it is not found.

    With neither rows nor columns there is nothing to find: u = 0. Entries that are no numbers, and too many iterations,
    are what is not found.
    """
    if 0 in matrix.shape:
        return np.zeros(matrix.shape[1]), float(np.linalg.norm(target))
    try:
        u, residual = nnls(matrix, target)
    except (RuntimeError, ValueError):
        return np.zeros(matrix.shape[1]), math.inf
    return np.asarray(u), float(residual)
