"""Exact rational arithmetic on floats: every float is an integer times a power of two, so equalities can be decided.

The library python-flint does the arithmetic. This module converts floats to rationals without loss, and rationals to
floats with a single rounding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from flint import fmpq, fmpq_mat, fmpz, fmpz_mat, nmod_mat
from jaxtyping import Float64, Int64

from reference_attention.errors import InvalidInput


def rational(x: float) -> fmpq:
    """Return a finite float as the rational number that it represents.

    Raises:
        InvalidInput: x is NaN or infinite.
    """
    if not math.isfinite(x):
        raise InvalidInput(f"array: {x} is not a rational number; replace NaN and infinite entries.")
    return fmpq(*float(x).as_integer_ratio())


def rational_matrix(rows: Float64[np.ndarray, "m k"]) -> fmpq_mat:
    """Return a float matrix as the rational matrix that it represents, shape (m, k)."""
    m, k = rows.shape
    return fmpq_mat(m, k, [rational(x) for x in rows.ravel().tolist()])


def inner(a: Sequence[fmpq], b: Sequence[fmpq]) -> fmpq:
    """Return a·b over the rationals."""
    return products([a], b)[0] if len(a) >= MANY_TERMS else sum((x * y for x, y in zip(a, b, strict=True)), fmpq(0))


def products(rows: Sequence[Sequence[fmpq]], p: Sequence[fmpq]) -> list[fmpq]:
    """Return the product row·p for every row.

    A matrix product with a common denominator is faster than a loop, which would reduce a fraction at every term.
    """
    if not rows:
        return []
    return list((fmpq_mat(list(map(list, rows))) * fmpq_mat(len(p), 1, list(p))).entries())


def combination(rows: Sequence[Sequence[fmpq]], weights: Sequence[fmpq], d: int) -> list[fmpq]:
    """Return Σ_j weights_j rows_j, a vector of length d, computed like :func:`products`."""
    if not rows:
        return [fmpq(0)] * d
    return list((fmpq_mat(1, len(weights), list(weights)) * fmpq_mat(list(map(list, rows)))).entries())


def rank_of(rows: Sequence[Sequence[fmpq]]) -> int:
    """Return the rank of the matrix of the given rows, exactly.

    The rank modulo a prime is computed first, because it is cheaper: if it is full, so is the rank over the rationals.
    """
    if not rows:
        return 0
    numerators, _ = fmpq_mat(list(map(list, rows))).numer_denom()
    full = min(numerators.nrows(), numerators.ncols())
    return full if nmod_mat(numerators, PRIME).rank() == full else int(numerators.rank())


def ratio(numerator: fmpz, denominator: fmpz, exponent: int = 0) -> float:
    """Return the float nearest to numerator/denominator · 2^exponent; ±inf beyond the range of float64."""
    a, b = int(numerator), int(denominator)
    try:
        # Python rounds the quotient of two integers correctly, however long the integers are.
        return (a << exponent) / b if exponent >= 0 else a / (b << -exponent)
    except OverflowError:
        return math.inf if (a > 0) == (b > 0) else -math.inf


def to_float(q: fmpq) -> float:
    """Return the float nearest to a rational; below the normal range of float64 it is a subnormal number or zero.

    Raises:
        InvalidInput: q is beyond the range of float64.
    """
    value = ratio(q.p, q.q)
    if math.isinf(value):
        raise InvalidInput("array: an exact result is beyond the range of float64; rescale the data.")
    return value


def to_floats(values: Iterable[fmpq]) -> Float64[np.ndarray, "m"]:
    """Return the floats nearest to rationals, shape (m,); see :func:`to_float`."""
    return np.array([to_float(q) for q in values], dtype=np.float64)


def times_power_of_two(q: fmpq, exponent: int) -> fmpq:
    """Return q · 2^exponent."""
    power = fmpz(1) << abs(exponent)
    return q * power if exponent >= 0 else q / power


PRIME = 2**61 - 1
"""Prime modulo which ranks are computed first; the rank of an integer matrix modulo a prime is at most its true
rank."""

LIMB = 50
"""Number of bits of a limb: large integers are split into limbs, which are digits in base 2^50."""

MANY_TERMS = 65
"""Number of terms of an inner product from which on a matrix product is faster than a loop."""


def from_limbs(limbs: Int64[np.ndarray, "l m k"]) -> fmpz_mat:
    """Return the integer matrix, shape (m, k), with the given digits in base 2^:data:`LIMB`, the lowest digit first."""
    _, m, k = limbs.shape
    base = fmpz(1) << LIMB
    matrices = (fmpz_mat(m, k, limb.ravel().tolist()) for limb in limbs[::-1])
    return reduce(lambda high, low: high * base + low, matrices)


@dataclass(frozen=True, eq=False)
class Dyadic:
    """A float array as integers times a common power of two: entry = mantissa · 2^shift · 2^exponent.

    Attributes:
        mantissas: odd integers (or zero), of the array's shape.
        shifts: non-negative exponents, of the array's shape.
        exponent: the largest integer for which every entry is an integer multiple of 2^exponent (0 if all are zero).
    """

    mantissas: Int64[np.ndarray, "*shape"]
    shifts: Int64[np.ndarray, "*shape"]
    exponent: int

    @classmethod
    def of(cls, array: Float64[np.ndarray, "*shape"]) -> Dyadic:
        """Return the dyadic form of a float array.

        Raises:
            InvalidInput: NaN or infinite entries.
        """
        if not np.isfinite(array).all():
            raise InvalidInput("array: NaN and infinite entries are no rational numbers; replace them.")
        fraction, exponents = np.frexp(array)
        mantissas = np.ldexp(fraction, 53).astype(np.int64)
        lowest_bit = (mantissas & -mantissas).astype(np.float64)
        zeros = np.maximum(np.frexp(lowest_bit)[1].astype(np.int64) - 1, 0)
        mantissas >>= zeros
        exponents = exponents.astype(np.int64) - 53 + zeros
        nonzero = mantissas != 0
        lowest = int(exponents[nonzero].min()) if nonzero.any() else 0
        return cls(mantissas, np.where(nonzero, exponents - lowest, 0), lowest)

    def limbs(self) -> Int64[np.ndarray, "l *shape"]:
        """Return the digits of the entries divided by 2^exponent, in base 2^:data:`LIMB`, the lowest digit first.

        Every digit lies within ±2^53. The library python-flint converts such machine integers several times faster than
        Python's integers of any length.
        """
        sizes, signs = np.abs(self.mantissas), np.sign(self.mantissas)
        first, within = np.divmod(self.shifts, LIMB)
        low = signs * ((sizes & ((np.int64(1) << (LIMB - within)) - 1)) << within)
        high = signs * (sizes >> (LIMB - within))
        places = np.arange(int(first.max(initial=0)) + 2).reshape(-1, *(1 for _ in first.shape))
        return np.where(places == first, low, 0) + np.where(places == first + 1, high, 0)

    def integers(self, index: tuple[int, ...] = ()) -> list[int]:
        """Return the entries of ``array[index]`` in row-major order, divided by 2^exponent, exactly."""
        pairs = zip(self.mantissas[index].ravel().tolist(), self.shifts[index].ravel().tolist(), strict=True)
        return [m << s for m, s in pairs]


def rounded_product(a: Float64[np.ndarray, "m k"], b: Float64[np.ndarray, "k l"]) -> Float64[np.ndarray, "m l"]:
    """Return the matrix product a b, shape (m, l); each entry is the exact sum, rounded once to float64.

    Unlike ``a @ b``, the result does not depend on the order of summation, and hence not on BLAS, the number of cores
    or the machine. Entries whose exact values are equal are equal floats.

    Raises:
        InvalidInput: an entry is NaN or infinite, or a non-zero entry of the product is outside float64's normal range.
    """
    (m, k), l = a.shape, b.shape[1]
    left, right = Dyadic.of(a), Dyadic.of(b)
    product = (fmpz_mat(m, k, left.integers()) * fmpz_mat(k, l, right.integers())).entries()
    denominator, unit = fmpz(1), left.exponent + right.exponent
    values = np.array([ratio(x, denominator, unit) for x in product], dtype=np.float64)
    normal = np.isfinite(values) & (np.abs(values) >= sys.float_info.min)
    if not all(ok or x == 0 for ok, x in zip(normal.tolist(), product, strict=True)):
        raise InvalidInput("array: a product of the data is beyond the normal range of float64; rescale the data.")
    return values.reshape(m, l)
