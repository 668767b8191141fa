"""Constants of smoothness equal the sums in their docstrings, and bound the second derivative of L."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention import risk
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from theorems.rounding.attention_at import AttentionAt
from theorems.token_selection.softmax.smoothness import local_smoothness, log_constant, log_sharp_smoothness

EPS = float(np.finfo(float).eps)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_sharp_constant_is_the_documented_sum(loss: str) -> None:
    problem = Problem(RNG.normal(size=(3, 4, 5)), RNG.normal(size=(3, 4)), loss)
    m0 = math.exp(problem.loss.log_lipschitz(*problem.score_range))
    m1 = math.exp(problem.loss.log_bound(*problem.score_range))
    expected = 0.0
    for keys, scores in zip(problem.keys, problem.scores, strict=True):
        width = np.ptp(scores)
        diameter = max(float(np.linalg.norm(a - b)) for a in keys for b in keys)
        expected += (m0 * width**2 * diameter**2 / 16 + 3 * m1 * width * diameter**2 / 16) / 3
    result = log_sharp_smoothness(problem)
    assert abs(result.value - math.log(expected)) <= result.error + 16 * EPS
    assert result.error <= 256 * EPS


@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_the_local_constant_is_the_documented_mean_and_bounds_the_second_derivative(loss: str) -> None:
    problem = Problem(RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 4)), loss)
    points = RNG.normal(size=(5, 3))
    result = local_smoothness(AttentionAt(problem, points))
    m0, h = math.exp(problem.loss.log_lipschitz(*problem.score_range)), 1e-5
    for p, bound in zip(points, np.asarray(result.value), strict=True):
        expected = 0.0
        for keys, scores in zip(problem.keys, problem.scores, strict=True):
            s = np.exp(keys @ p) / np.exp(keys @ p).sum()
            off, apart = scores - s @ scores, keys - s @ keys
            slope = math.exp(problem.loss.log_slope(np.array([s @ scores]))[0])
            covariance = np.sum((s * off)[:, None] * apart, axis=0)
            expected += (m0 * covariance @ covariance + slope * (s * abs(off)) @ np.sum(apart**2, axis=1)) / 2
        assert bound == pytest.approx(expected, rel=1e-12)
        moved = []
        for e in np.eye(3):
            two = [risk.scaled_gradient(problem.keys, problem.scores, problem.loss, p + c * h * e) for c in (1, -1)]
            up, down = (np.exp(item.log_scale) * item.direction for item in two)
            moved.append((up - down) / (2 * h))
        # Central differences err by h² times a third derivative, and by rounding divided by h.
        assert np.linalg.norm(np.array(moved), 2) <= bound + 1e-8


def test_the_logarithm_of_a_constant_near_one_carries_rounding() -> None:
    """The logarithm of a constant near 1 is known only up to the spacing of floats at 1."""
    assert log_constant(0.0).error >= EPS
    assert log_constant(-3.0).error >= 3 * EPS
    assert log_constant(-math.inf).error == 0
