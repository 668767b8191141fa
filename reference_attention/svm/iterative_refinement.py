"""The least-norm point for given active constraints by iterative refinement, with a bound of its error.

The problem is min ‖p‖ subject to g_j·p ≥ h_j. If the rows of the active constraints, the matrix G, are independent, the
λ with G Gᵀ λ = h gives p = Gᵀ λ. With an approximate inverse R of G Gᵀ, λ is improved by adding R(h − G p), where the
residual h − G p and p are computed to a hundred bits (:mod:`.ozaki_products`). If ‖1 − R G Gᵀ‖ ≤ α < 1, a residual of
absolute values at most τ leaves λ within ‖ |R|τ ‖/(1 − α) of the exact one. Unless the rows are nearly dependent, this
bound proves λ > 0 and rounds λ and p correctly, in less time than ball arithmetic (:mod:`.enclosure`).

References: S. M. Rump, *Verification methods: rigorous results using floating-point arithmetic*, Acta Numerica 19
(2010), sections 10.1 and 10.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.svm.ozaki_products import Grid, Twice, two_sum

STEPS = 4
"""Largest number of refinements; each adds as many correct digits as the approximate inverse R has."""
SPREAD = 300
"""Largest accepted |e| if the largest entry of a row is about 2^e in absolute value; up to this exponent nothing
overflows, and underflow is harmless."""
ROOM = 1 + 2.0**-30
"""A factor by which computed error bounds are multiplied, so that they cover the rounding errors of their own
computation."""
ENOUGH = 0.5
"""Largest accepted bound of ‖1 − R G Gᵀ‖; up to this value each refinement at least halves the error of λ."""


@dataclass(frozen=True, eq=False)
class Refined:
    """The multipliers λ > 0 and the point p = Gᵀλ, each entry the exact number rounded once.

    Attributes:
        duals: λ, shape (s,).
        point: p, shape (d,).
    """

    duals: Float64[np.ndarray, "s"]
    point: Float64[np.ndarray, "d"]


def refine(rows: Twice, bounds: Float64[np.ndarray, "s"]) -> Refined | None:
    """Return λ and p for active constraints; None if error bounds do not decide signs of λ and roundings of λ and p.

    Args:
        rows: the rows G of the active constraints, exactly, shape (s, d).
        bounds: their right sides h.
    """
    sizes = np.frexp(np.abs(rows.high).max(axis=1))[1]
    if np.abs(sizes).max() > SPREAD:
        return None
    unit = Unit(np.ldexp(rows.high, -sizes[:, None]), np.ldexp(rows.low, -sizes[:, None]))
    if not unit.contraction < ENOUGH:
        return None
    scaled_bounds = np.ldexp(bounds, -sizes)
    duals = Twice(unit.inverse @ scaled_bounds, np.zeros(len(scaled_bounds)))
    for _ in range(STEPS):
        point = unit.point(duals)
        if (residual := unit.residual(scaled_bounds, point)) is None:
            return None
        duals, dual_error = unit.improve(duals, residual, point.error)
        point = unit.point(duals)
        exact = point.round_within(unit.distance_bound(dual_error, point.error)), duals.round_within(dual_error)
        if exact[0] is not None and exact[1] is not None and (duals.high > dual_error).all():
            return Refined(np.ldexp(exact[1], -sizes), exact[0])
    return None


class Unit:
    """Rows G whose largest entries are scaled to between 1/2 and 1, and an approximate inverse R of G Gᵀ.

    Attributes:
        inverse: R, (s, s).
        contraction: a bound of ‖1 − R G Gᵀ‖_∞, the largest absolute row sum; infinite if there is no R.
        columns: the sum of absolute values of each column of G, (d,).
        rows: the sum of absolute values of each row of G, (s,).
    """

    def __init__(self, high: Float64[np.ndarray, "s d"], low: Float64[np.ndarray, "s d"]) -> None:
        """Take the rows as sums high + low, invert the matrix G Gᵀ in floats, and bound the error of the inverse."""
        s, d = high.shape
        self._grid: Grid = Grid.for_sums_of(max(s, d))
        self._slices = self._grid.cut(high, low)
        sizes = np.abs(high)
        self.columns: Float64[np.ndarray, "d"] = sizes.sum(axis=0)
        self.rows: Float64[np.ndarray, "s"] = sizes.sum(axis=1)
        gram = high @ high.T
        try:
            self.inverse: Float64[np.ndarray, "s s"] = np.linalg.inv(gram)
        except np.linalg.LinAlgError:
            self.inverse, self.contraction = np.zeros((s, s)), math.inf
            return
        # Errors of the rounded rows, of d products and their sum, and of s products with R and their sum: together at
        # most (d + s + 8) eps, relative to the sum of the absolute values of the products.
        rounding = (d + s + 8) * EPS * (np.abs(self.inverse) @ (sizes @ sizes.T))
        deviation = np.abs(np.eye(s) - self.inverse @ gram) + rounding
        self.contraction = float(deviation.sum(axis=1).max()) * ROOM

    def point(self, duals: Twice) -> Twice:
        """Return Gᵀλ, shape (d,)."""
        exponent, cut = self._cut(duals)
        return self._grid.sum_products(self._slices.mT @ cut.T).times(exponent)

    def residual(self, bounds: Float64[np.ndarray, "s"], point: Twice) -> Twice | None:
        """Return G p − h, shape (s,); None where G p − h is too large for the grid of the products."""
        exponent, cut = self._cut(point)
        less = np.ldexp(bounds, -exponent)
        if not (np.abs(less) <= self._grid.terms).all():
            return None
        return self._grid.sum_products(self._slices @ cut.T, less).times(exponent)

    def _cut(self, numbers: Twice) -> tuple[int, Float64[np.ndarray, "k m"]]:
        """Return an exponent that scales the numbers to at most one, and the slices of the scaled numbers."""
        exponent = math.frexp(float(np.abs(numbers.high).max()))[1]
        return exponent, self._grid.cut(np.ldexp(numbers.high, -exponent), np.ldexp(numbers.low, -exponent))

    def improve(self, duals: Twice, residual: Twice, error: float) -> tuple[Twice, float]:
        """Return λ − R(G p − h), and a bound of its distance from the exact λ.

        If e is the error of the given λ, the error of the result is (1 − R G Gᵀ) e, up to the errors of the residual
        and of rounding.

        Args:
            duals: λ.
            residual: G p − h.
            error: a bound of the error of each entry of p.
        """
        sizes, residual_sizes = np.abs(self.inverse), np.abs(residual.high)
        residual_error = residual.error + np.abs(residual.low) + self.rows * error
        before = float((sizes @ (residual_sizes + residual_error)).max()) / (1 - self.contraction)
        rounding = float((sizes @ (residual_error + (len(residual_sizes) + 4) * EPS * residual_sizes)).max())
        total, low = two_sum(duals.high, -(self.inverse @ residual.high))
        rounding += 2.0**-100 * float(np.abs(total).max())
        return Twice(*two_sum(total, low + duals.low)), (self.contraction * before + rounding) * ROOM

    def distance_bound(self, off: float, error: float) -> Float64[np.ndarray, "d"]:
        """Return a bound of the distance of each entry of p = Gᵀλ from the exact one; zero in columns of zeros.

        Args:
            off: a bound of the error of λ.
            error: a bound of the error of the product Gᵀλ.
        """
        return np.where(self.columns > 0, (off * self.columns + error) * ROOM, 0.0)
