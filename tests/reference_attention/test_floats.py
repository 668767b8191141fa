"""Elementary functions in float64 against arithmetic of many digits."""

from __future__ import annotations

import mpmath
import numpy as np

from reference_attention.floats import EPS, log_expm1


def test_eps_is_the_spacing_at_one() -> None:
    assert np.spacing(1.0) == EPS


def test_log_expm1_keeps_small_and_large_arguments() -> None:
    """Arguments x from 10⁻³⁰⁰ to 10⁵ lie on both sides of 30, where the formula changes and e^{−x} is 27 units of the
    last place of x.
    """
    near = 30 + np.array([-1.0, -1e-9, 0.0, 1e-9, 1.0])
    points = np.concatenate([np.geomspace(1e-300, 1e5, 300), near])
    with mpmath.workdps(60):
        truth = np.array([float(mpmath.log(mpmath.expm1(mpmath.mpf(x)))) for x in points.tolist()])
    assert (np.abs(log_expm1(points) - truth) <= 16 * np.spacing(1.0) * (1 + np.abs(truth))).all()
