"""Products of matrices to a hundred bits by the Ozaki scheme: exact sums of products of short pieces of the numbers.

Numbers are cut into slices: integers of so few bits that a sum of d products of two slices fits into the 53 bits of a
float. So BLAS, in whatever order it sums, computes products of matrices of slices exactly. The rest of a number, below
its last slice, is bounded.

References: K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, *Error-free transformations of matrix multiplication by using fast
routines of matrix multiplication and its applications*, Numerical Algorithms 59 (2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

KEPT = 110
"""Least number of bits of a number, counted from the highest bit of the largest number, that its slices contain."""


@dataclass(frozen=True, eq=False)
class Twice:
    """Numbers as unevaluated sums of two floats, high + low with ``low`` below a rounding of ``high``; of any shape.

    Attributes:
        high, low: the two floats of each number.
        error: an upper bound, the same for all entries, of the distance of a sum from the number that it represents.
    """

    high: Float64[np.ndarray, "*shape"]
    low: Float64[np.ndarray, "*shape"]
    error: float = 0.0

    def round_within(self, error: Float64[np.ndarray, "*shape"] | float) -> Float64[np.ndarray, "*shape"] | None:
        """Return each number rounded to a float; None if a number within ``error`` of an entry rounds differently."""
        radius = error * (1 + 2.0**-40) + np.abs(self.low) * 2.0**-52
        low, high = self.high + (self.low - radius), self.high + (self.low + radius)
        return low if np.array_equal(low, high) else None

    def times(self, exponent: int) -> Twice:
        """Return the numbers times 2^exponent."""
        return Twice(np.ldexp(self.high, exponent), np.ldexp(self.low, exponent), math.ldexp(self.error, exponent))


def two_sum(
    a: Float64[np.ndarray, "*shape"], b: Float64[np.ndarray, "*#shape"]
) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
    """Return a + b rounded to floats, and the rounding errors, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@dataclass(frozen=True)
class Grid:
    """The number and length of slices for exact sums of ``terms`` products.

    Attributes:
        terms: largest number of products in a sum.
        bits: number of bits of a slice.
        slices: number of slices of a number.
    """

    terms: int
    bits: int
    slices: int

    @classmethod
    def for_sums_of(cls, terms: int) -> Grid:
        """Return the grid with as many bits per slice as allow exact sums of ``terms`` products."""
        bits = (53 - terms.bit_length()) // 2
        return cls(terms, bits, -(-KEPT // bits))

    @property
    def error(self) -> float:
        """Return a bound of the error of a sum of ``terms`` products of numbers of absolute value at most one.

        The bound covers the rests of numbers below their last slices, the products of slices that are too small to be
        computed, and the roundings of the result.
        """
        return self.terms * ((2 * self.slices + 3) * 2.0 ** (-self.bits * self.slices) + 2.0**-100)

    def cut(
        self, high: Float64[np.ndarray, "*shape"], low: Float64[np.ndarray, "*shape"]
    ) -> Float64[np.ndarray, "k *shape"]:
        """Return integers q_0, q_1, … of at most 2^bits with high + low = Σ_a q_a 2^(−bits (a + 1)), up to 2^(−bits k).

        The k integers q_a are the slices. Absolute values of ``high`` must be at most one, and those of ``low`` at most
        a rounding of ``high``.
        """
        slices = np.empty((self.slices, *high.shape))
        base = 2.0**self.bits
        for q in slices:
            high, low = high * base, low * base
            whole, part = np.rint(high), np.rint(low)
            np.add(whole, part, out=q)
            high, low = high - whole, low - part
        return slices

    def sum_products(
        self, products: Float64[np.ndarray, "k m k"], less: Float64[np.ndarray, "m"] | None = None
    ) -> Twice:
        """Return Σ_ab products[a, :, b] 2^(−bits (a + b + 2)) minus ``less``.

        ``products`` holds the products of the slices a of one number with the slices b of another, summed over terms.
        The absolute values of ``less`` must be at most ``terms``.
        """
        first, second, starts = self._levels
        levels = np.add.reduceat(products[first, :, second].astype(np.int64), starts, axis=0)
        if less is not None:
            self._subtract(levels, less)
        digits = np.empty((self.slices + 1, levels.shape[1]))
        above: Int64[np.ndarray, "m"] | int = 0
        for k in range(self.slices, 0, -1):
            level = levels[k - 1] + above
            above = level >> self.bits
            digits[k] = np.ldexp(level - (above << self.bits), -self.bits * (k + 1))
        digits[0] = np.ldexp(np.asarray(above, dtype=np.float64), -self.bits)
        high, low = two_sum(digits[0], digits[1])
        for digit in digits[2:]:
            high, rounding = two_sum(high, digit)
            low = low + rounding
        return Twice(*two_sum(high, low), self.error)

    @cached_property
    def _levels(self) -> tuple[Int64[np.ndarray, "p"], Int64[np.ndarray, "p"], Int64[np.ndarray, "k"]]:
        """Return a and b of the pairs with a + b < slices, ordered by a + b, and each sum's first index in them."""
        pairs = np.array([(a, level - a) for level in range(self.slices) for a in range(level + 1)])
        return pairs[:, 0], pairs[:, 1], np.cumsum(np.arange(self.slices))

    def _subtract(self, levels: Int64[np.ndarray, "k m"], less: Float64[np.ndarray, "m"]) -> None:
        """Subtract ``less`` from ``levels``, the sums of products for each a + b, in place."""
        remainder = less * 4.0**self.bits
        for level in levels:
            whole = np.rint(remainder)
            level -= whole.astype(np.int64)
            remainder = (remainder - whole) * 2.0**self.bits
