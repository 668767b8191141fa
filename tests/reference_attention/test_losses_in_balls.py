"""Losses on arrays that carry bounds of their rounding: the bounds contain the true value at every magnitude, and are
not too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from flint import arb

from reference_attention.losses import loss_named
from tests.reference_attention.exact_losses import CURVATURES, LOG_SLOPES, SLOPES, VALUES, log_size
from tests.theorems import oracle
from tests.theorems.bounded.balls import escaped, sampled, used
from theorems.bounded import Bounded, exact, spacing, value_of

NAMES = ("logistic", "exponential", "correlation", "sigmoid", "squared", "cubic", "kinked")
BITS = 10_000
"""Number of bits at which the cube of δ = e^{−2000} does not vanish next to 1."""


def each(function: Callable[..., Any], *operands: np.ndarray) -> np.ndarray:
    out = np.empty(operands[0].shape, dtype=object)
    for k in np.ndindex(out.shape):
        out[k] = function(*(x[k] for x in operands))
    return out


def excess(name: str) -> Callable[..., Any]:
    """Return a function for log |ℓ(u − δ) − ℓ(u)|, which is exact where the difference is linear in δ."""

    def truth(u: Any, sign: float, log_delta: Any) -> Any:
        if sign == 0:
            return -arb("inf")
        end = u - int(sign) * log_delta.exp()
        if name == "correlation" or (name == "kinked" and u <= 0 and end <= 0):
            return log_delta  # exactly
        return log_size(VALUES[name](end) - VALUES[name](u))

    return truth


def widened(rng: np.random.Generator, value: np.ndarray) -> Bounded:
    """Return the values with error bounds of zero or from 1e-17 up to 1."""
    error = 10.0 ** rng.uniform(-17, 0, value.shape)
    return Bounded(value, np.where(rng.random(value.shape) < 0.3, 0.0, error))


def arguments(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return arguments of all sizes, some next to the points where losses change their formula."""
    near = rng.choice([-20.0, -0.5, 0.0, 1.0, 0.5, 37.0], size) + rng.choice([0.0, 1e-9, -1e-9, 1e-17, 0.3], size)
    u = np.where(rng.random(size) < 0.4, rng.uniform(-700, 700, size), rng.normal(size=size) * 3)
    return np.where(rng.random(size) < 0.2, near, u)


def log_sizes(rng: np.random.Generator, size: int) -> np.ndarray:
    near = rng.choice(np.log([1e-8, 37.0, 1.0, 2e-9, 0.5]), size) + rng.choice([0.0, 1e-9, 1e-3, -0.2], size)
    logs = np.where(rng.random(size) < 0.3, rng.uniform(-2000, 6, size), rng.uniform(-25, 6, size))
    return np.where(rng.random(size) < 0.2, near, logs)


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    with oracle.precision(BITS):
        yield


def sign_is(name: str, u: Any, log_delta: Any, sign: float) -> float:
    """Return the sign of the change of the loss; the squared loss also increases."""
    moved = VALUES[name](u - int(sign) * log_delta.exp()) - VALUES[name](u) if sign else arb(0)
    return 1.0 if moved > 0 else -1.0 if moved < 0 else 0.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("eps", [0.0, 2.0**-23])
def test_bounds_of_functions_of_the_score_contain_the_true_value(name: str, eps: float) -> None:
    rng, loss = np.random.default_rng(1), loss_named(name)
    for _ in range(3):
        u = widened(rng, arguments(rng, 100))
        if eps:
            with spacing(eps):
                result = [loss.value(u), loss.log_slope(u), loss.relative_curvature(u), loss.derivative(u)]
        else:
            result = [loss.value(u), loss.log_slope(u), loss.relative_curvature(u), loss.derivative(u)]
        with oracle.precision(3000):
            points = sampled(rng, u)
            formulas = [VALUES[name], LOG_SLOPES[name], CURVATURES[name], SLOPES[name]]
            for formula, ball in zip(formulas, result, strict=True):
                assert escaped(each(formula, points), ball)[:3] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("eps", [0.0, 2.0**-23])
def test_bounds_of_the_excess_contain_the_true_value(name: str, eps: float) -> None:
    rng, loss = np.random.default_rng(2), loss_named(name)
    known = 0
    for _ in range(3):
        u, logs = widened(rng, arguments(rng, 150)), widened(rng, log_sizes(rng, 150))
        signs = rng.choice([-1.0, 0.0, 1.0], 150, p=[0.45, 0.1, 0.45])
        if eps:
            with spacing(eps):
                found_sign, result = loss.log_excess(u, signs, logs)
        else:
            found_sign, result = loss.log_excess(u, signs, logs)
        points, steps = sampled(rng, u), sampled(rng, logs)
        assert escaped(each(excess(name), points, signs, steps), result)[:3] == []
        theirs = each(lambda t, s, d: arb(sign_is(name, t, d, s)), points, signs, steps)
        assert escaped(theirs, found_sign if isinstance(found_sign, Bounded) else exact(found_sign))[:3] == []
        known += int(np.isfinite(result.error).sum())
    # Where the difference may vanish, an error of order one makes its logarithm unbounded.
    assert known > 0.6 * 450


@pytest.mark.parametrize("name", NAMES)
def test_an_uncertain_sign_gives_an_infinite_error_bound(name: str) -> None:
    loss, sign = loss_named(name), np.sign(Bounded([0.0, 1.0, -1.0], [1.0, 0.0, 0.0]))
    for u, logs in ((exact(np.full(3, 0.3)), np.full(3, -2.0)), (np.full(3, 0.3), exact(np.full(3, -2.0)))):
        for given in (logs, exact(np.full(3, -2.0))):
            found_sign, result = loss.log_excess(u, sign, given)
            assert result.error[0] == np.inf
            assert np.abs(found_sign.error[0]) >= 1
            assert np.isfinite(result.error[1:]).all()


@pytest.mark.parametrize("name", NAMES)
def test_losses_accept_plain_and_bounded_arrays_together(name: str) -> None:
    loss, u, logs = loss_named(name), np.array([0.3, -2.0]), np.array([-1.0, -30.0])
    _, plain = loss.log_excess(u, np.ones(2), logs)
    for operands in ((exact(u), logs), (u, exact(logs)), (exact(u), exact(logs))):
        _, result = loss.log_excess(operands[0], np.ones(2), operands[1])
        assert value_of(result) == pytest.approx(plain, rel=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_error_bounds_are_not_much_wider_than_necessary(name: str) -> None:
    """An exact argument costs a few roundings, an inexact one its error times the slope of the function."""
    rng, loss = np.random.default_rng(3), loss_named(name)
    u = np.where(rng.random(80) < 0.5, rng.uniform(-600, 600, 80), rng.normal(size=80) * 3)
    logs, signs = rng.uniform(-800, 5, 80), rng.choice([-1.0, 1.0], 80)
    _, sharp = loss.log_excess(exact(u), signs, exact(logs))
    size = 1 + np.abs(u) + np.abs(logs) + np.exp(logs) * (1 + np.abs(logs))
    assert np.median(sharp.error / size) < 16 * 2.0**-52
    assert (sharp.error < 64 * 2.0**-52 * size).mean() > 0.9
    for error in (1e-9, 1e-3):
        x, y = Bounded(u, error * np.ones(80)), Bounded(logs, error * np.ones(80))
        _, result = loss.log_excess(x, signs, y)
        most = np.zeros(80)
        for corner in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
            points, steps = sampled(rng, x, corner[0]), sampled(rng, y, corner[1])
            most = np.maximum(most, used(each(excess(name), points, signs, steps), result))
        print(name, error, [f"{np.quantile(most, q):.2g}" for q in (0.02, 0.1, 0.5)])
        assert np.median(most) > 0.3
        for function in (loss.value, loss.log_slope):
            assert np.isfinite(function(x).error).mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(("shortest", "longest"), [(-800, -20), (-18, 3.5), (3.7, 6)])
def test_an_exact_argument_costs_a_few_roundings_in_every_piece(
    name: str, sign: float, shortest: float, longest: float
) -> None:
    """Small, middling and large steps at scores of all sizes use every piece of the formula, even those that few points
    use.
    """
    rng, loss = np.random.default_rng(4), loss_named(name)
    for low, high in ((-600, -40), (-36, -1), (-1, 1), (1, 36), (40, 600)):
        u, logs = rng.uniform(low, high, 40), rng.uniform(shortest, longest, 40)
        _, result = loss.log_excess(exact(u), np.full(40, sign), exact(logs))
        size = 1 + np.abs(u) + np.abs(logs) + np.exp(logs) * (1 + np.abs(logs))
        assert (result.error / size).max() < 16 * 2.0**-52
