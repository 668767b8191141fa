"""Losses that violate Assumption A: their numerics against mpmath, and an exact witness of the violation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from reference_attention.ill_behaved_losses import ILL_BEHAVED_LOSSES, IllBehavedLoss
from reference_attention.losses import LOSSES, loss_named
from reference_attention.problem import Problem
from theorems.bounded import Bounded

EPS = 2.0**-52
EXACT: dict[str, Callable[[Any], Any]] = {
    "squared": lambda u: (1 - u) ** 2 / 2,
    "cubic": lambda u: -(u**3),
    "kinked": lambda u: -u / 4 if u > 0 else -u,
}
POINTS = np.array([-3.0, -1.0, -0.5, -1e-9, 0.0, 1e-9, 0.25, 1.0, 1.5, 3.0])


@pytest.mark.parametrize("name", ILL_BEHAVED_LOSSES)
def test_log_excess_agrees_with_arithmetic_of_many_digits(name: str) -> None:
    loss, exact = loss_named(name), EXACT[name]
    with mpmath.workprec(400):
        for log_size in np.linspace(-60, 2, 32):
            for sign in (-1.0, 0.0, 1.0):
                shape = np.ones_like(POINTS)
                signs, logs = loss.log_excess(POINTS, sign * shape, log_size * shape)
                for u, s, log in zip(POINTS.tolist(), signs, logs, strict=True):
                    step = sign * mpmath.exp(mpmath.mpf(float(log_size)))
                    expected = exact(mpmath.mpf(u) - step) - exact(mpmath.mpf(u))
                    assert s == mpmath.sign(expected) or log == -math.inf
                    if expected != 0:
                        assert abs(mpmath.log(abs(expected)) - float(log)) <= 64 * EPS * (1 + abs(log))


@pytest.mark.parametrize("name", ILL_BEHAVED_LOSSES)
def test_log_excess_is_accurate_for_steps_below_the_range_of_floats(name: str) -> None:
    """The step δ is e^{−10⁶}; at the points taken the first-order term vanishes."""
    flat = {"squared": 1.0, "cubic": 0.0, "kinked": 0.0}[name]
    sign, log = loss_named(name).log_excess(np.array([flat]), np.array([1.0]), np.array([-1e6]))
    order = {"squared": 2, "cubic": 3, "kinked": 1}[name]
    assert sign[0] == 1.0
    assert log[0] == pytest.approx(-1e6 * order, abs=1.0)


@pytest.mark.parametrize("name", ILL_BEHAVED_LOSSES)
def test_the_derivative_on_a_ball_encloses_slopes_and_difference_quotients(name: str) -> None:
    loss = ILL_BEHAVED_LOSSES[name]
    low, high = np.array([-2.0, -0.5, 0.25, -1.0, 1.5]), np.array([-1.0, 1.5, 2.0, 0.5, 3.0])
    ball = loss.derivative(Bounded((low + high) / 2, (high - low) / 2))
    least, largest = ball.value - ball.error, ball.value + ball.error
    for a, b, x, y in zip(low, high, least, largest, strict=True):
        grid = np.linspace(a, b, 513)
        slope = loss.derivative(grid)
        assert (slope >= x - 1e-12).all()
        assert (slope <= y + 1e-12).all()
        # If the interval contains 0, a ball with the range of u² is at most twice as wide as that range.
        assert y - x <= 4 * (slope.max() - slope.min()) + 1e-12
        quotients = np.diff(loss.value(grid)) / np.diff(grid)
        assert (quotients >= x - 1e-12).all()
        assert (quotients <= y + 1e-12).all()
        assert np.abs(slope).max() <= math.exp(loss.log_bound(a, b)) * (1 + 4 * EPS)
        assert np.abs(slope).min() >= math.exp(loss.log_floor(a, b)) * (1 - 4 * EPS)
        # Both bounds are attained, the lower one unless the grid misses a zero of ℓ'.
        assert np.abs(slope).max() >= math.exp(loss.log_bound(a, b)) * (1 - 4 * EPS)
        assert np.abs(slope).min() <= math.exp(loss.log_floor(a, b)) * (1 + 4 * EPS) + 0.01 * (
            a <= 1 <= b or a <= 0 <= b
        )
        lipschitz = math.exp(loss.log_lipschitz(a, b))
        assert (np.abs(np.diff(slope)) <= lipschitz * np.diff(grid) * (1 + 1e-9) + 1e-12).all()
        assert lipschitz == math.inf or (np.abs(np.diff(slope)) / np.diff(grid)).max() >= 0.99 * lipschitz


def test_bounds_on_an_interval_around_the_kink_include_both_slopes() -> None:
    kinked = ILL_BEHAVED_LOSSES["kinked"]
    ranges = [(-2.0, -1.0), (-1.0, 0.0), (-1.0, 1.0), (0.0, 1.0), (1.0, 2.0)]
    assert [kinked.log_lipschitz(*x) for x in ranges] == [-math.inf, -math.inf, math.inf, math.inf, -math.inf]


@pytest.mark.parametrize(
    ("name", "scores", "message"),
    [
        ("squared", [0.0, 2.0], "ℓ'(2) = 1 is not negative"),
        ("squared", [0.0, 1.0], "ℓ'(1) = 0 is not negative"),
        ("cubic", [-1.0, 0.0], "ℓ'(0) = 0 is not negative"),
        ("cubic", [-1.0, 1.0], "ℓ'(0) = 0 is not negative"),
        ("cubic", [0.0, 1.0], "ℓ'(0) = 0 is not negative"),
        ("cubic", [-0.5, 0.5], "ℓ'(0) = 0 is not negative"),
        ("kinked", [-1.0, 1.0], "ℓ' jumps"),
        ("kinked", [0.0, 1.0], "ℓ' jumps"),
        ("kinked", [-0.5, 0.5], "ℓ' jumps"),
    ],
)
def test_assumption_a_fails_by_an_exact_witness(name: str, scores: list[float], message: str) -> None:
    case = Case(Problem(np.zeros((1, 2, 1)), np.array([scores]), loss_named(name)))
    result = ASSUMPTIONS["well-behaved-loss"].check(case)
    assert result.holds is False
    assert message in result.evidence


@pytest.mark.parametrize(("name", "scores"), [("squared", [0.0, 0.5]), ("cubic", [1.0, 2.0]), ("kinked", [1.0, 2.0])])
def test_assumption_a_holds_for_scores_away_from_the_defect_of_the_loss(name: str, scores: list[float]) -> None:
    case = Case(Problem(np.zeros((1, 2, 1)), np.array([scores]), loss_named(name)))
    assert ASSUMPTIONS["well-behaved-loss"].check(case).holds is True


def test_ill_behaved_losses_are_drawn_only_on_request() -> None:
    assert not set(LOSSES) & set(ILL_BEHAVED_LOSSES)
    assert all(loss_named(name) is loss for name, loss in ILL_BEHAVED_LOSSES.items())


def test_constants_are_right_where_an_interval_ends_at_the_defect_of_the_loss() -> None:
    squared, cubic, kinked = (ILL_BEHAVED_LOSSES[name] for name in ("squared", "cubic", "kinked"))
    assert [squared.log_floor(*x) for x in ((1.0, 2.0), (0.0, 1.0))] == [-math.inf, -math.inf]
    assert [cubic.log_floor(*x) for x in ((0.0, 1.0), (-1.0, 0.0))] == [-math.inf, -math.inf]
    assert [squared.log_bound(1.0, 1.0), cubic.log_bound(0.0, 0.0), cubic.log_lipschitz(0.0, 0.0)] == [-math.inf] * 3
    quarter = -math.log(4)
    assert [squared.log_floor(1.25, 3.0), cubic.log_floor(0.5, 2.0)] == pytest.approx([quarter, math.log(0.75)])
    assert [kinked.log_bound(*x) for x in ((-1.0, 0.0), (0.0, 1.0), (0.5, 2.0))] == [0.0, 0.0, quarter]
    assert [kinked.log_floor(*x) for x in ((-2.0, -0.5), (-1.0, 0.0), (-1.0, 0.5))] == [0.0, 0.0, quarter]
    assert kinked.defect(-1.0, 0.0) == ""


@pytest.mark.parametrize(
    ("name", "low", "high", "least"),
    [
        ("squared", -1.0, 0.5, 0.0),
        ("squared", 0.5, 1.0, 0.0),
        ("squared", 0.5, 1.5, math.inf),
        ("cubic", 0.5, 2.0, 4.0),
        ("cubic", 4.0, 5.0, 0.5),
        ("cubic", -2.0, -0.5, 0.0),
        ("cubic", -2.0, 0.0, 0.0),
        ("cubic", 0.0, 0.5, math.inf),
        ("cubic", -0.5, 0.5, math.inf),
        ("kinked", -1.0, 1.0, 0.0),
    ],
)
def test_steepening_is_the_least_bound_on_the_growth_of_the_slope(
    name: str, low: float, high: float, least: float
) -> None:
    """Compare with max(0, sup d log |ℓ'|/du), computed by hand."""
    assert ILL_BEHAVED_LOSSES[name].steepening(low, high) == least


def test_the_excess_of_a_step_across_the_minimum_to_an_equal_value_has_sign_zero() -> None:
    """The function (1 − u)² is 1/4 both at u = 3/2 and at u = 1/2."""
    sign, log = ILL_BEHAVED_LOSSES["squared"].log_excess(np.array([1.5]), np.array([1.0]), np.array([0.0]))
    assert (sign[0], log[0]) == (0.0, -math.inf)


@pytest.mark.parametrize("loss", ILL_BEHAVED_LOSSES.values(), ids=str)
def test_a_loss_declares_whether_it_decreases(loss: IllBehavedLoss) -> None:
    falls = bool((np.diff(loss.value(np.linspace(-3, 3, 100))) < 0).all())
    assert loss.decreasing == falls
