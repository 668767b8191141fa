"""Fitted rates: the exponent of a power law, its error bar, and curves to which nothing can be fitted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from theorems.benchmark.fit import fit_tail
from theorems.benchmark.optimisers.optimiser import Against

T = np.arange(5001)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_recovered(exponent: float) -> None:
    with np.errstate(divide="ignore"):
        power, logarithm = 0.3 * T**-exponent, 0.3 * np.log(T) ** -exponent
    for distance, against in ((power, Against.TIME), (logarithm, Against.LOG)):
        result = fit_tail(T, distance**2 / 2, against)
        assert result is not None
        assert result.exponent == pytest.approx(exponent, rel=1e-10)
        assert result.error < 1e-10
        assert (result.first, result.last) == (50, 5000)


def test_the_error_is_large_for_a_curve_that_is_no_power_law() -> None:
    with np.errstate(divide="ignore"):
        bent = 1 / T + 0.003
    result = fit_tail(T, bent**2 / 2, Against.TIME)
    assert result is not None
    assert result.error > 0.02
    # Compute the jackknife by hand, over the same points.
    t = T[np.round(np.geomspace(50, 5000, 40)).astype(int)]
    x, y = np.log(t), np.log(bent[t])
    blocks = [np.arange(k, k + 5) for k in range(0, 40, 5)]
    slopes = [np.polyfit(np.delete(x, block), np.delete(y, block), 1)[0] for block in blocks]
    assert result.error == pytest.approx(math.sqrt(7 * np.var(slopes)), rel=1e-9)
    assert result.exponent == pytest.approx(-np.polyfit(x, y, 1)[0], rel=1e-9)


def test_nothing_is_fitted_to_short_runs_or_zero_distances() -> None:
    curve = np.full(5001, 0.1)
    assert fit_tail(T[:300], curve[:300], Against.TIME) is None
    assert fit_tail(T, np.where(T == 5000, 0.0, curve), Against.TIME) is None
    assert fit_tail(T, np.where(T == 50, math.nan, curve), Against.TIME) is None
    assert fit_tail(T, curve, Against.TIME) is not None
