"""Upper bounds of the spectral and the nuclear norm of a rational matrix, proven in rational arithmetic.

Neither eigenvalues nor singular values are needed: ‖A‖_op < σ if σ²I − AᵀA is positive definite, which elimination
decides; and ‖A‖_⋆ ≤ ½(‖K‖_F² + ‖Q‖_F²) for all factors A = K Qᵀ. Floats are used only to guess σ and K.
"""

from __future__ import annotations

import math

import numpy as np
from flint import fmpq, fmpq_mat

from reference_attention.exact import rational, rational_matrix, to_floats
from reference_attention.floats import EPS

CLOSE = 2.0**-46
"""Relative amount by which the first σ that is tried exceeds ‖A‖_op as computed in floats."""


def spectral_norm_above(matrix: fmpq_mat) -> fmpq | None:
    """Return a rational σ > ‖A‖_op, usually larger by a relative 2^−46; None if no such σ is found, as for A = 0."""
    square = matrix * matrix.transpose() if matrix.nrows() < matrix.ncols() else matrix.transpose() * matrix
    size, excess = float(np.linalg.norm(_floats(matrix), ord=2)), CLOSE
    while excess < 1 and 0 < size < math.inf:
        sigma = rational(size * (1 + excess))
        if is_below(square, sigma * sigma):
            return sigma
        excess *= 8
    return None


def nuclear_norm_above(matrix: fmpq_mat) -> fmpq | None:
    """Return an upper bound ½(‖K‖_F² + ‖Q‖_F²) of ‖A‖_⋆ from factors A = K Qᵀ; None if there are none, as for A = 0.

    K approximates U S^½ of the singular value decomposition A = U S Vᵀ in floats, and Q = AᵀK⁻ᵀ exactly. The bound is
    near ‖A‖_⋆, because the columns of K are orthogonal up to rounding and have the lengths of the columns of Q. A
    singular value that is 0, or is lost in rounding, is replaced by eps times the largest.
    """
    wide = matrix if matrix.nrows() <= matrix.ncols() else matrix.transpose()
    U, S, _ = np.linalg.svd(_floats(wide), full_matrices=False)
    if not 0 < S[0] < math.inf:
        return None
    K = rational_matrix(np.asarray(U * np.sqrt(np.maximum(S, EPS * S[0]))))
    if K.det() == 0:
        return None
    Q = K.solve(wide)
    return (squared_norm(K) + squared_norm(Q)) / 2


def squared_norm(matrix: fmpq_mat) -> fmpq:
    """Return the sum ‖A‖_F² of the squared entries."""
    return sum((x * x for x in matrix.entries()), fmpq(0))


def is_below(square: fmpq_mat, shift: fmpq) -> bool:
    """Return whether shift·I − square is positive definite for a symmetric matrix ``square``, decided exactly."""
    n = square.nrows()
    A: list[list[fmpq]] = [[(shift if i == j else fmpq(0)) - square[i, j] for j in range(n)] for i in range(n)]
    for j in range(n):
        if not A[j][j] > 0:
            return False
        for i in range(j + 1, n):
            factor = A[i][j] / A[j][j]
            for k in range(j + 1, i + 1):
                A[i][k] -= factor * A[k][j]
    return True


def _floats(matrix: fmpq_mat) -> np.ndarray:
    return np.asarray(to_floats(list(matrix.entries()))).reshape(matrix.nrows(), matrix.ncols())
