"""The rate of a run: the exponent b in ‖p/‖p‖ − limit‖ ≈ C x^{−b}, x = t or log t, and how well b is determined.

The curve has no noise, so the error of b is not a sampling error. Instead, the jackknife measures how much b changes if
one of several blocks of points is left out of the fit: the error is large if the curve is not a power law.

References: Miller, *The jackknife – a review*, Biometrika 1974; least squares in logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from theorems.benchmark.optimisers.optimiser import Against

TAIL = 100.0
"""The last iteration of the fit divided by the first: two decades."""
BLOCKS, EACH = 8, 5
"""The number of jackknife blocks, and the number of points in a block; the points are evenly spaced in log t."""
EARLIEST = 3.0
"""The earliest iteration t of the fit; so log t > 1."""


@dataclass(frozen=True)
class Fit:
    """The power law ‖p/‖p‖ − limit‖ ≈ C x^{−b} fitted to a run, and the error of its exponent.

    Attributes:
        against: the variable x, t or log t.
        exponent: the exponent b.
        error: the standard error of b by the jackknife over blocks.
        first, last: the first and the last iteration to which the law is fitted.
    """

    against: str
    exponent: float
    error: float
    first: int
    last: int


def fit_tail(
    iterations: Int64[np.ndarray, "r"], one_minus_cosine: Float64[np.ndarray, "r"], against: Against
) -> Fit | None:
    """Fit the exponent b of :class:`Fit` to the last two decades of t of a run, whose iterations are consecutive.

    Returns:
        ``None`` if these decades have too few iterations, contain p = 0, which has no direction, or reach the limit up
            to rounding.
    """
    last = int(iterations[-1])
    targets = np.geomspace(max(last / TAIL, EARLIEST), max(last, EARLIEST), BLOCKS * EACH)
    index = np.searchsorted(iterations, np.round(targets).astype(np.int64))
    if index[-1] >= len(iterations) or len(np.unique(index)) < len(index):
        return None
    t, distance = iterations[index].astype(np.float64), np.sqrt(2 * one_minus_cosine[index])
    if not (np.isfinite(distance) & (distance > 0)).all():
        return None
    x = np.log(np.log(t) if against == Against.LOG else t)
    y = np.log(distance)
    block = np.arange(len(x)) // EACH
    without = np.array([_slope(x[block != k], y[block != k]) for k in range(BLOCKS)])
    error = math.sqrt((BLOCKS - 1) / BLOCKS * float(((without - without.mean()) ** 2).sum()))
    return Fit(str(against), -_slope(x, y), error, int(t[0]), int(t[-1]))


def _slope(x: Float64[np.ndarray, "m"], y: Float64[np.ndarray, "m"]) -> float:
    centred = x - x.mean()
    return float(centred @ y / (centred @ centred))
