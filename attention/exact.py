"""Exact rational arithmetic on float data: every float is a dyadic rational, so equalities can be decided.

python-flint does the arithmetic; this module converts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from flint import fmpq, fmpq_mat, fmpz_mat
from jaxtyping import Float64


def rational(x: float) -> fmpq:
    """The rational number that a finite float is."""
    return fmpq(*float(x).as_integer_ratio())


def rational_matrix(rows: Float64[np.ndarray, "m k"]) -> fmpq_mat:
    """The rational matrix that a float matrix is, shape (m, k)."""
    m, k = rows.shape
    return fmpq_mat(m, k, [rational(x) for x in rows.ravel().tolist()])


def to_float(q: fmpq) -> float:
    """The float nearest to a rational (Python's integer division rounds correctly)."""
    return int(q.p) / int(q.q)


def to_floats(values: Iterable[fmpq]) -> Float64[np.ndarray, "m"]:
    """The floats nearest to rationals, shape (m,)."""
    return np.array([to_float(q) for q in values], dtype=np.float64)


def _integers(rows: Float64[np.ndarray, "m k"]) -> tuple[fmpz_mat, int]:
    """An integer matrix A and an exponent e with rows = A · 2^e."""
    ratios = [float(x).as_integer_ratio() for x in rows.ravel().tolist()]
    shift = max((den.bit_length() - 1 for _, den in ratios), default=0)
    m, k = rows.shape
    return fmpz_mat(m, k, [num << (shift - den.bit_length() + 1) for num, den in ratios]), -shift


def rounded_product(a: Float64[np.ndarray, "m k"], b: Float64[np.ndarray, "k l"]) -> Float64[np.ndarray, "m l"]:
    """The matrix product a b, each entry the exact sum rounded once to float64, shape (m, l).

    Unlike ``a @ b`` it does not depend on the order of summation, hence not on BLAS, cores or machine, and equal
    exact values give equal floats.
    """
    left, e = _integers(a)
    right, f = _integers(b)
    product = left * right
    denominator = 1 << -(e + f)
    return np.array([[int(x) / denominator for x in row] for row in product.tolist()], dtype=np.float64)
