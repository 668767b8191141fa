"""The logarithm of the excess risk and its derivatives, in the plane and on a sphere, against 80-digit arithmetic."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from reference_attention.losses import LOSSES
from reference_attention.paths.excess_risk import Excess
from reference_attention.problem import Problem
from tests.reference_attention.paths.test_joint_formulas import derivatives

EPS = float(np.finfo(float).eps)


def problem(tied: bool) -> Problem:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(3, 4))
    if tied:
        scores[np.arange(3), scores.argmax(axis=1)] = scores[0, 0]
        scores[:, :2] = 1.0 + scores.max()
    return Problem(rng.normal(size=(3, 4, 4)), scores, LOSSES["logistic"])


def exact(given: Problem, p: list[mpmath.mpf]) -> mpmath.mpf:
    """Return log(L − L_opt) in 80 digits."""
    total = mpmath.mpf(0)
    for keys, scores in zip(given.keys, given.scores, strict=True):
        s = [mpmath.exp(mpmath.fdot(map(mpmath.mpf, k), p)) for k in keys]
        total += mpmath.log1p(mpmath.exp(-mpmath.fdot(s, map(mpmath.mpf, scores)) / mpmath.fsum(s)))
        total -= mpmath.log1p(mpmath.exp(-mpmath.mpf(float(scores.max()))))
    return mpmath.log(total / len(given.keys))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 200.0])
def test_value_and_slope_are_those_of_the_logarithm_of_the_excess(tied: bool, size: float) -> None:
    given = problem(tied)
    p = size * np.random.default_rng(0).normal(size=4)
    with mpmath.workdps(80):
        value, slope, _ = derivatives(lambda x: exact(given, x), p, twice=False)
    result, gradient = Excess(given, given.optimal).value_and_slope(p)
    # The rounding allowed is that of logits of size |K p|.
    assert result == pytest.approx(value, abs=16 * EPS * (1 + 4 * size))
    assert gradient == pytest.approx(slope, abs=64 * EPS * (1 + 4 * size) * (1 + np.abs(slope).max()))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shift", [0.0, -60.0, -200.0, 20.0])
def test_on_a_sphere_a_common_shift_of_logits_is_left_out_and_derivatives_are_tangential(
    tied: bool, shift: float
) -> None:
    given, rng = problem(tied), np.random.default_rng(4)
    # Keys whose first coordinate disfavours the chosen tokens by `shift`, so that the excess is of size e^{shift}.
    keys = given.keys.copy()
    keys[..., 0] = 0.0
    keys[np.arange(3), given.optimal, 0] = 1.0
    given = Problem(keys, given.scores, given.loss)
    unit, basis = np.eye(4)[0], np.eye(4)[:, 1:]
    R, y = abs(shift) + 2.0, rng.normal(size=3) * 0.5
    excess = Excess(given, given.optimal)
    relative = -R * np.ones((3, 3)) - shift
    result = excess.on_sphere(R, unit, basis, y, (relative, shift))
    assert result is not None
    with mpmath.workdps(80 + int(abs(shift))):
        value, slope, curvature = derivatives(
            lambda x: exact(given, [mpmath.sqrt(mpmath.mpf(R) ** 2 - mpmath.fdot(x, x)), *x]) - shift, y
        )
    assert result[0] == pytest.approx(value, abs=1e-13 * (1 + R))
    assert result[1] == pytest.approx(slope, abs=1e-12 * np.abs(slope).max())
    assert result[2] == pytest.approx(curvature, abs=1e-11 * np.abs(curvature).max())


def test_no_newton_step_where_the_excess_is_zero_or_constant() -> None:
    keys, unit, basis = np.random.default_rng(0).normal(size=(2, 3, 2)), np.eye(2)[0], np.eye(2)[:, 1:]
    level = Excess(Problem(keys, np.ones((2, 3))), np.zeros(2, dtype=np.int64))
    value, slope = level.value_and_slope(np.ones(2))
    assert value == -math.inf
    assert (slope == 0).all()
    logits = (level.differences.rows @ unit).reshape(2, 2)
    assert level.on_sphere(1.0, unit, basis, np.zeros(1), (logits, 0.0)) is None
    # With equal keys the excess is positive and the same for every p.
    equal = Excess(Problem(np.ones((2, 3, 2)), np.eye(2, 3)), np.array([0, 1]))
    assert equal.value_and_slope(np.ones(2))[0] > -math.inf
    assert equal.on_sphere(1.0, unit, basis, np.zeros(1), (np.zeros((2, 2)), 0.0)) is None
