"""Matrices of balls: definiteness, factors and least eigenvalues, each proven or not decided.

A ball is a number that is known up to an error: a midpoint, and a radius that bounds the error.

References: F. Johansson, *Arb: efficient arbitrary-precision midpoint-radius interval arithmetic* (2017).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from jaxtyping import Float64
from numpy.typing import NDArray

BITS = 160
"""Working precision in bits: three times the 53 bits of a float, so that sums and products of a few floats are
exact."""
CLOSE = 2.0**-51
"""Distance below the float eigenvalue at which :func:`least_eigenvalue` first tries a lower bound, relative to n
times the largest entry of the n × n matrix."""


def precision() -> Any:
    """Return the context manager within which balls are computed with :data:`BITS` bits."""
    return ctx.workprec(BITS)


def balls(array: NDArray[Any]) -> arb_mat:
    """Return a matrix of floats as balls of radius 0, shape (m, k)."""
    m, k = array.shape
    return arb_mat(m, k, array.ravel().tolist())


def midpoints(matrix: arb_mat) -> Float64[np.ndarray, "m k"]:
    """Return the midpoints of a matrix of balls, each rounded once to a float."""
    entries = [float(x.mid()) for x in matrix.entries()]
    return np.array(entries).reshape(matrix.nrows(), matrix.ncols())


def below(x: arb) -> float:
    """Return a float that is no larger than any number in the ball x."""
    return math.nextafter(float(x.lower()), -math.inf)


def above(x: arb) -> float:
    """Return a float that is no smaller than any number in the ball x."""
    return math.nextafter(float(x.upper()), math.inf)


def identity(n: int) -> arb_mat:
    """Return the identity matrix of n rows."""
    return arb_mat(n, n, [int(i == j) for i in range(n) for j in range(n)])


def multiply(matrix: arb_mat, factor: arb) -> arb_mat:
    """Return the matrix times a number."""
    return arb_mat(matrix.nrows(), matrix.ncols(), [x * factor for x in matrix.entries()])


def squared_norm(matrix: arb_mat) -> arb:
    """Return the sum of the squared entries of a matrix."""
    return sum((x * x for x in matrix.entries()), arb(0))


def cholesky(matrix: arb_mat) -> arb_mat | None:
    """Return balls with the Cholesky factor of every symmetric A in ``matrix``; None if an A may not be definite."""
    A, n = matrix.tolist(), matrix.nrows()
    for j in range(n):
        pivot = A[j][j]
        if not pivot > 0:
            return None
        root = pivot.sqrt()
        A[j][j] = root
        for i in range(j + 1, n):
            A[i][j] = A[i][j] / root
        for i in range(j + 1, n):
            for k in range(j + 1, i + 1):
                A[i][k] -= A[i][j] * A[k][j]
    return arb_mat(n, n, [A[i][j] if j <= i else arb(0) for i in range(n) for j in range(n)])


def least_eigenvalue(matrix: arb_mat) -> arb:
    """Return a ball with the least eigenvalue of every symmetric A in ``matrix``; NaN if no lower bound is proven.

    The lower bound is a number μ below the eigenvalue in floats, for which A − μI ≻ 0 is proven; the upper bound is a
    Rayleigh quotient.
    """
    n, floats = matrix.nrows(), midpoints(matrix)
    values, vectors = np.linalg.eigh((floats + floats.T) / 2)
    guess, size = float(values[0]), float(np.abs(floats).max()) * n
    vector = balls(vectors[:, :1])
    high = (vector.transpose() * matrix * vector)[0, 0] / squared_norm(vector)
    step = CLOSE * size
    while step <= size:
        low = arb(guess) - arb(step)
        if cholesky(matrix - multiply(identity(n), low)) is not None:
            return low.union(high)
        step *= 8
    return arb(math.nan)
