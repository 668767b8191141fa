"""The least-norm point on given active constraints by iterative refinement, with a bound of its error.

For independent rows g_j, j ∈ S, the λ with G_S G_Sᵀ λ = h_S give p = G_Sᵀ λ. An approximate inverse R of G_S G_Sᵀ
improves λ by R(h_S − G_S p), residual and p being formed to a hundred bits (:mod:`.sliced`); and where
‖1 − R G_S G_Sᵀ‖ ≤ α < 1, a residual of at most τ leaves λ within ‖ |R|τ ‖/(1 − α). That decides signs and roundings
wherever the rows are not nearly dependent, in less time than ball arithmetic (:mod:`.enclosure`).

References: S. M. Rump, *Verification methods: rigorous results using floating-point arithmetic*, Acta Numerica 19
(2010), sections 10.1 and 10.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.svm.sliced import Grid, Twice, grid, two_sum

STEPS = 4
"""Refinements: each adds the digits that R has."""
SPREAD = 300
"""Powers of two that sizes of rows may be from one: nothing here overflows, or underflows where it matters."""
ROOM = 1 + 2.0**-30
"""More than what the sums lose that bounds themselves are made of."""


@dataclass(frozen=True, eq=False)
class Refined:
    """λ > 0 and p, each entry the exact one rounded once.

    Attributes:
        duals: λ, shape (s,).
        point: p, shape (d,).
    """

    duals: Float64[np.ndarray, "s"]
    point: Float64[np.ndarray, "d"]


def refined(rows: Twice, bounds: Float64[np.ndarray, "s"]) -> Refined | None:
    """λ and p for these rows; None where that does not tell signs or roundings.

    Args:
        rows: G_S exactly, shape (s, d).
        bounds: h_S.
    """
    sizes = np.frexp(np.abs(rows.high).max(axis=1))[1]
    if not (np.abs(rows.high).max(axis=1) > 0).all() or np.abs(sizes).max() > SPREAD:
        return None
    unit = _Unit(np.ldexp(rows.high, -sizes[:, None]), np.ldexp(rows.low, -sizes[:, None]))
    asked = np.ldexp(bounds, -sizes)
    if unit.inverse is None:
        return None
    duals = Twice(unit.inverse @ asked, np.zeros(len(asked)))
    for _ in range(STEPS):
        if (point := unit.point(duals)) is None or (residual := unit.residual(asked, point)) is None:
            return None
        duals, off = unit.improved(duals, residual, point.error)
        if (point := unit.point(duals)) is None:
            return None
        across = np.where(unit.columns > 0, off * unit.columns + point.error, 0.0)
        exact = point.rounded(across), duals.rounded(off)
        if exact[0] is not None and exact[1] is not None and (duals.high > off).all():
            return Refined(np.ldexp(exact[1], -sizes), exact[0])
    return None


class _Unit:
    """Rows brought to sizes between 1/2 and 1, and an approximate inverse R of their inner products.

    Attributes:
        inverse: R, shape (s, s); None where there is none, or none near enough.
        columns: Σ_j |g_jk|, shape (d,).
    """

    def __init__(self, high: Float64[np.ndarray, "s d"], low: Float64[np.ndarray, "s d"]) -> None:
        self._grid: Grid = grid(max(high.shape))
        self._slices = self._grid.cut(high, low)
        sizes = np.abs(high)
        self.columns: Float64[np.ndarray, "d"] = sizes.sum(axis=0) * ROOM
        self._rows: Float64[np.ndarray, "s"] = sizes.sum(axis=1) * ROOM
        self.inverse: Float64[np.ndarray, "s s"] | None = None
        gram = high @ high.T
        try:
            inverse = np.linalg.inv(gram)
        except np.linalg.LinAlgError:
            return
        s, d = high.shape
        # Rounded rows, d products and their sum, s products with R and theirs, all within (d + s + 8) eps of the sizes.
        lost = (d + s + 8) * EPS * (np.abs(inverse) @ (sizes @ sizes.T))
        off = np.abs(np.eye(s) - inverse @ gram) + lost
        self._contraction = float(off.sum(axis=1).max()) * ROOM
        if self._contraction < 0.5:
            self.inverse = inverse

    def point(self, duals: Twice) -> Twice | None:
        """Gᵀλ, shape (d,); None where λ is zero or out of range."""
        largest = float(np.abs(duals.high).max())
        if not 0 < largest < math.inf:
            return None
        exponent = math.frexp(largest)[1]
        cut = self._grid.cut(np.ldexp(duals.high, -exponent), np.ldexp(duals.low, -exponent))
        return _scaled(self._grid.summed(self._slices.mT @ cut.T), exponent)

    def residual(self, asked: Float64[np.ndarray, "s"], point: Twice) -> Twice | None:
        """G p − h, shape (s,); None where p is far from any that is asked for."""
        exponent = math.frexp(float(np.abs(point.high).max()))[1]
        asked = np.ldexp(asked, -exponent)
        if not (np.abs(asked) <= self._grid.terms).all():
            return None
        cut = self._grid.cut(np.ldexp(point.high, -exponent), np.ldexp(point.low, -exponent))
        return _scaled(self._grid.summed(self._slices @ cut.T, less=asked), exponent)

    def improved(self, duals: Twice, residual: Twice, error: float) -> tuple[Twice, float]:
        """λ + R(h − G p), and how far it is from the exact one at most.

        With e that of the given λ it is (1 − R G Gᵀ) e, up to what the residual and this sum are off.

        Args:
            residual: G p − h.
            error: of p.
        """
        assert self.inverse is not None
        sizes = np.abs(self.inverse)
        known = np.abs(residual.high) * ROOM
        off = residual.error + np.abs(residual.low) + self._rows * error
        before = float((sizes @ (known + off)).max()) / (1 - self._contraction)
        lost = float((sizes @ (off + (len(known) + 4) * EPS * known)).max())
        total, low = two_sum(duals.high, -(self.inverse @ residual.high))
        moved = Twice(*two_sum(total, low + duals.low))
        lost += 2.0**-100 * float(np.abs(total).max())
        return moved, (self._contraction * before + lost) * ROOM


def _scaled(numbers: Twice, exponent: int) -> Twice:
    return Twice(
        np.ldexp(numbers.high, exponent), np.ldexp(numbers.low, exponent), float(np.ldexp(numbers.error, exponent))
    )
