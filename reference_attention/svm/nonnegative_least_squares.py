"""Non-negative least squares by SciPy, except for matrices without columns, on which SciPy's function crashes."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from scipy.optimize import nnls


def nonnegative_least_squares(
    matrix: Float64[np.ndarray, "k m"], target: Float64[np.ndarray, "k"]
) -> tuple[Float64[np.ndarray, "m"], float]:
    """Return argmin ‖A u − b‖ over u ≥ 0 and the residual ‖A u − b‖; zeros and ∞ if the solver fails.

    Without rows or columns the solution is u = 0. The solver fails where entries are not numbers, or after too many
    iterations.
    """
    if 0 in matrix.shape:
        return np.zeros(matrix.shape[1]), float(np.linalg.norm(target))
    try:
        u, residual = nnls(matrix, target)
    except (RuntimeError, ValueError):
        return np.zeros(matrix.shape[1]), math.inf
    return np.asarray(u), float(residual)
