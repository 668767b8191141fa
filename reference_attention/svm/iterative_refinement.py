"""The least-norm point on given active constraints by iterative refinement, with a bound of its error.

For independent rows g_j, j ∈ S, the λ with G_S G_Sᵀ λ = h_S gives p = G_Sᵀ λ. With an approximate inverse R of G_S
G_Sᵀ, λ is improved by adding R(h_S − G_S p), where the residual h_S − G_S p and p are computed to a hundred bits
(:mod:`.ozaki_products`). If ‖1 − R G_S G_Sᵀ‖ ≤ α < 1, a residual of at most τ leaves λ within ‖ |R|τ ‖/(1 − α) of the
exact one. This bound decides signs and roundings wherever the rows are not nearly dependent, in less time than ball
arithmetic (:mod:`.enclosure`).

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
"""Largest number of refinements; each adds as many correct digits as R has."""
SPREAD = 300
"""Largest absolute exponent of the size of a row; up to this exponent nothing overflows, and underflow is harmless."""
ROOM = 1 + 2.0**-30
"""A factor that covers the rounding errors of the sums from which the bounds themselves are computed."""
ENOUGH = 0.5
"""Largest accepted ‖1 − R G Gᵀ‖; up to this value each step at least halves the error of λ."""


@dataclass(frozen=True, eq=False)
class Refined:
    """The multipliers λ > 0 and the point p, each entry the exact one rounded once.

    Attributes:
        duals: λ, shape (s,).
        point: p, shape (d,).
    """

    duals: Float64[np.ndarray, "s"]
    point: Float64[np.ndarray, "d"]


def refine(rows: Twice, bounds: Float64[np.ndarray, "s"]) -> Refined | None:
    """Return λ and p for these rows; None where the error bounds do not decide signs or roundings.

    Args:
        rows: G_S exactly, shape (s, d).
        bounds: h_S.
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
    """Rows scaled to sizes between 1/2 and 1, and an approximate inverse R of their inner products.

    Attributes:
        inverse: R, (s, s).
        contraction: a bound of ‖1 − R G Gᵀ‖_∞, the largest absolute row sum; infinite if there is no R.
        columns, rows: the sums Σ_j |g_jk| over rows and Σ_k |g_jk| over columns, (d,) and (s,).
    """

    def __init__(self, high: Float64[np.ndarray, "s d"], low: Float64[np.ndarray, "s d"]) -> None:
        """Take the rows as sums high + low, invert their inner products, and bound the error of the inverse."""
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
        # most (d + s + 8) eps, relative to the sizes.
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
        """Return an exponent, and the slices of the numbers divided by that power of two, all at most one."""
        exponent = math.frexp(float(np.abs(numbers.high).max()))[1]
        return exponent, self._grid.cut(np.ldexp(numbers.high, -exponent), np.ldexp(numbers.low, -exponent))

    def improve(self, duals: Twice, residual: Twice, error: float) -> tuple[Twice, float]:
        """Return λ − R(G p − h), and a bound of its distance from the exact λ.

        If e is the error of the given λ, the error of the result is (1 − R G Gᵀ) e, up to the errors of the residual
        and of this sum.

        Args:
            duals: λ.
            residual: G p − h.
            error: the error of p.
        """
        sizes, residual_sizes = np.abs(self.inverse), np.abs(residual.high)
        residual_error = residual.error + np.abs(residual.low) + self.rows * error
        before = float((sizes @ (residual_sizes + residual_error)).max()) / (1 - self.contraction)
        rounding = float((sizes @ (residual_error + (len(residual_sizes) + 4) * EPS * residual_sizes)).max())
        total, low = two_sum(duals.high, -(self.inverse @ residual.high))
        rounding += 2.0**-100 * float(np.abs(total).max())
        return Twice(*two_sum(total, low + duals.low)), (self.contraction * before + rounding) * ROOM

    def distance_bound(self, off: float, error: float) -> Float64[np.ndarray, "d"]:
        """Return a bound of the distance of p from the exact point; zero in columns of zeros.

        The bound follows from ``off``, a bound of the error of λ, and from ``error``, the error of the product.
        """
        return np.where(self.columns > 0, (off * self.columns + error) * ROOM, 0.0)
