"""The least-norm point for given active constraints, in ball arithmetic: the sign of a ball without 0 is proven.

The problem is min ‖p‖ subject to g_j·p ≥ h_j. If the rows g_j of the active constraints j ∈ S, the matrix G_S, are
independent, the λ with G_S G_Sᵀ λ = h_S gives p = G_Sᵀ λ with g_j·p = h_j on S. If λ > 0 and no other constraint is
violated, p is the point of least norm (KKT). Balls of some hundred bits prove this unless a further constraint happens
to hold with equality, at a tenth of the cost of the rationals, whose numerators have thousands of bits.

References: F. Johansson, *Arb: efficient arbitrary-precision midpoint-radius interval arithmetic* (2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, ctx, fmpz_mat
from jaxtyping import Float64

BITS = (128, 384)
"""Working precision in bits, and the precision to try next if that does not suffice. The precision has to cover the 53
bits of a float, twice the bits of a condition number, and one bit that elimination loses with each row."""
ENOUGH = 60
"""Relative accuracy in bits that a ball must have to be rounded: a little more than a float's 53 bits, because fewer
bits rarely determine the rounded number."""


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Balls that contain the duals λ and the point p for rows that are given as integers 2^shift g_j.

    Attributes:
        duals: λ for the integer rows, shape (s, 1).
        point: p for the integer rows, shape (d, 1).
        shift: the exponent of the factor 2^shift in the integer rows.
        bits: the precision with which λ and p were computed.
    """

    duals: arb_mat
    point: arb_mat
    shift: int
    bits: int

    def margins(self, rows: fmpz_mat, shift: int) -> arb_mat:
        """Return the products of p with other integer rows 2^shift g_j, shape (m, 1)."""
        with ctx.workprec(self.bits):
            return arb_mat(rows) * self.point * arb(2) ** (self.shift - shift)


def enclose(matrix: fmpz_mat, shift: int, bounds: list[int]) -> Enclosure | None:
    """Return λ and p for active constraints; None if balls do not prove independent rows and positive λ_j.

    Args:
        matrix: the rows of the active constraints as integers, 2^shift G_S, shape (s, d).
        shift: the exponent of that factor.
        bounds: the right sides h_j of the active constraints, s of them.
    """
    gram, h = matrix * matrix.transpose(), fmpz_mat(len(bounds), 1, bounds)
    for bits in BITS:
        with ctx.workprec(bits):
            try:
                duals = arb_mat(gram).solve(arb_mat(h), algorithm="lu")
            except ZeroDivisionError:
                continue
            if any(x < 0 for x in duals.entries()):
                return None
            point = arb_mat(matrix.transpose()) * duals
            if all(x > 0 for x in duals.entries()) and all(x.rel_accuracy_bits() > ENOUGH for x in point.entries()):
                return Enclosure(duals, point, shift, bits)
    return None


def round_balls(balls: arb_mat, exponent: int) -> Float64[np.ndarray, "k"] | None:
    """Return balls times 2^exponent, each rounded once to float64; None if a ball is too wide to determine a float."""
    with ctx.workprec(BITS[0]):
        entries = (balls * arb(2) ** exponent).entries() if exponent else balls.entries()
        low = np.array([float(x.lower()) for x in entries])
        high = np.array([float(x.upper()) for x in entries])
    # Rounding is monotone: if both ends of a ball round to the same float, so does every number in it.
    return low if np.array_equal(low, high) else None
