"""Losses against 60-digit arithmetic, at points where naive float64 formulas overflow, cancel or underflow."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from flint import arb

from reference_attention.errors import InvalidInput
from reference_attention.loss import Loss
from reference_attention.losses import DRAWN_LOSSES, LOSSES, Logistic, loss_named
from tests.reference_attention.exact_losses import SLOPES, VALUES
from tests.theorems.oracle import precision

EPS = float(np.finfo(float).eps)
LOG_SIZES = (-1e5, -800.0, -40.0, -20.5, -18.5, -3.0, -0.7, 0.0, 1.0, 3.4, 3.7, 6.0, 100.0, 300.0)
ARGUMENTS = (-1e120, -1e3, -60.0, -37.0, -5.0, -0.3, 0.0, 0.3, 5.0, 37.0, 60.0, 1e3, 1e120)
HUGE = 1e5
"""The argument from which on e^{−x} is dropped from exact formulas, whose 43,000th digit it changes."""


pytestmark = pytest.mark.filterwarnings("error")


def softplus(x: mpmath.mpf) -> mpmath.mpf:
    return x if x > HUGE else mpmath.exp(x) if x < -HUGE else mpmath.log1p(mpmath.exp(x))


def log_expm1(x: mpmath.mpf) -> mpmath.mpf:
    return x if x > HUGE else mpmath.log(mpmath.expm1(x))


def exact_log_excess(name: str, u: float, sign: int, log_size: float) -> float:
    """Return log |ℓ(u − δ) − ℓ(u)| in arithmetic of as many digits as the cancellation needs."""
    if name not in ("logistic", "exponential", "sigmoid"):
        with precision(3000):
            if log_size < -900:  # the excess is |ℓ' δ|, up to a relative error of δ
                return float((-SLOPES[name](arb(u))).log()) + log_size
            step = sign * arb(log_size).exp()
            return float(abs(VALUES[name](arb(u) - step) - VALUES[name](arb(u))).log())
    with mpmath.workdps(200 + int(1.1 * max(min(abs(log_size), 1e3), abs(u) if abs(u) < HUGE else 0.0))):
        u_, size = mpmath.mpf(u), mpmath.exp(mpmath.mpf(log_size))
        if name == "sigmoid":
            # The excess is computed as (1 − e^{−|δ|}) σ(±u) σ(|δ| ∓ u): two values of σ that are 1 up to their 43,000th
            # digit would have no difference.
            log_lost = mpmath.log(-mpmath.expm1(-size)) if log_size > -500 else mpmath.mpf(log_size)
            return float((log_lost if size < HUGE else 0) - softplus(-sign * u_) - softplus(sign * u_ - size))
        if log_size < -500:  # the excess is |ℓ' δ|, up to a relative error of δ/2
            return float(log_size - (u_ if name == "exponential" else softplus(u_)))
        log_lost = mpmath.log(-mpmath.expm1(-size)) if size < HUGE else mpmath.mpf(0)
        if name == "exponential":
            return float(-u_ + (log_expm1(size) if sign > 0 else log_lost))
        if sign > 0:
            y = log_expm1(size) - softplus(u_)
            return float(y if y < -HUGE else mpmath.log(softplus(y)))
        if u > HUGE:
            return float(-u_ + log_lost)
        return float(mpmath.log(softplus(-u_) - softplus(-u_ - size)))


def allowed(name: str, sign: int, u: float, log_size: float, expected: float) -> float:
    """Return the allowed rounding of a result and of its exponents; the exponential loss has the exponent δ in e^δ."""
    grown = np.exp(log_size) * (1 + abs(log_size)) if name == "exponential" and sign > 0 else 0.0
    return float(8 * EPS * (1 + abs(expected) + abs(u) * (abs(u) < 1e100 or expected < -1e100) + abs(log_size) + grown))


def worst_error(loss: Loss, name: str) -> float:
    """Return the largest error of log_excess, in units of the allowed rounding."""
    worst = 0.0
    for sign in (1, -1):
        for u in ARGUMENTS:
            for log_size in LOG_SIZES:
                expected = exact_log_excess(name, u, sign, log_size)
                s, got = loss.log_excess(np.array([u]), np.array([float(sign)]), np.array([log_size]))
                assert s[0] == sign
                error = abs(float(got[0]) - expected) / allowed(name, sign, u, log_size, expected)
                worst = max(worst, error if error == error else np.inf)
    return worst


@pytest.mark.parametrize("name", LOSSES)
def test_log_excess_agrees_with_exact_arithmetic(name: str) -> None:
    assert worst_error(LOSSES[name], name) <= 1


def test_a_loss_with_a_slope_of_the_wrong_sign_fails_the_comparison() -> None:
    class Wrong(Logistic):
        def log_slope(self, u):  # type: ignore[no-untyped-def]
            return super().log_slope(-u)

    assert worst_error(Wrong(), "logistic") > 1


@pytest.mark.parametrize("loss", LOSSES.values(), ids=str)
def test_losses_of_torch_tensors_agree_with_those_of_numpy_arrays(loss: Loss) -> None:
    u = np.repeat(np.array(ARGUMENTS), len(LOG_SIZES))
    log_size = np.tile(np.array(LOG_SIZES), len(ARGUMENTS))
    for sign in (-1.0, 1.0):
        _, here = loss.log_excess(u, np.full_like(u, sign), log_size)
        _, there = loss.log_excess(torch.tensor(u), torch.full((len(u),), sign).double(), torch.tensor(log_size))
        # Both libraries evaluate the same formula; their functions exp and log differ by a few roundings.
        scale = 1 + np.abs(here) + np.abs(log_size) + np.where(here > 1e3, 0, np.abs(u) * (np.abs(u) < 1e100))
        assert (np.abs(there.numpy() - here) <= 16 * EPS * scale * (1 + np.abs(log_size))).all()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=str)
def test_slope_and_curvature_are_the_derivatives(loss: Loss) -> None:
    for u in (-30.0, -2.0, 0.0, 0.7, 25.0):
        with precision(1000):
            value, h = VALUES[loss.name], arb(2) ** -150
            below, here, above = value(arb(u) - h), value(arb(u)), value(arb(u) + h)
            slope, bend = (above - below) / (2 * h), (above - 2 * here + below) / h**2
            at = np.array([u])
            assert abs(loss.value(at)[0] - float(here)) <= 4 * EPS * (1 + abs(u)) * abs(float(here))
            assert abs(loss.derivative(at)[0] - float(slope)) <= 4 * EPS * (1 + abs(u)) * abs(float(slope))
            expected = float(bend / abs(slope))
            # In 60 digits the difference quotients err by h², so that the rest is the rounding of the tested formula.
            assert abs(loss.relative_curvature(at)[0] - expected) <= 4 * EPS * (1 + abs(u)) * abs(expected) + 1e-25


@pytest.mark.parametrize("loss", LOSSES.values(), ids=str)
@pytest.mark.parametrize(("low", "high"), [(-2.0, 3.0), (1.0, 4.0), (-5.0, -1.0), (-1e120, 1e120)])
def test_constants_bound_the_derivative_on_the_interval(loss: Loss, low: float, high: float) -> None:
    u = np.linspace(low, high, 1001)
    slopes = loss.log_slope(u)
    rounding = 4 * EPS * (1 + np.abs(slopes).max())
    assert slopes.max() == pytest.approx(loss.log_bound(low, high), abs=rounding)
    assert slopes.min() == pytest.approx(loss.log_floor(low, high), abs=rounding)
    if high < 1e3:
        curvature = np.abs(loss.relative_curvature(u)) * np.exp(slopes)
        assert curvature.max() <= np.exp(loss.log_lipschitz(low, high)) * (1 + 8 * EPS)
        # Some grid point is within a step of the maximiser, so that the grid's maximum is too low by a second-order
        # term.
        assert curvature.max() >= np.exp(loss.log_lipschitz(low, high)) * (1 - (u[1] - u[0]))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=str)
@pytest.mark.parametrize(("low", "high"), [(-2.0, 3.0), (1.0, 4.0), (-5.0, -1.0), (-800.0, 700.0)])
def test_steepening_is_a_lower_bound_on_loss_decrease(loss: Loss, low: float, high: float) -> None:
    """For the steepening κ, the largest d log|ℓ'|/du, ℓ(u − δ) − ℓ(u) ≥ |ℓ'(u)| δ e^{−κδ/2}."""
    u = np.linspace(low, high, 301)
    kappa = loss.steepening(low, high)
    assert kappa == pytest.approx(max(0.0, float(np.max(-loss.relative_curvature(u)))), rel=4 * EPS)
    ends, delta = np.meshgrid(u, (high - low) * np.geomspace(1e-6, 1, 40))
    inside = ends - delta >= low
    _, lost = loss.log_excess(ends[inside], np.ones(inside.sum()), np.log(delta[inside]))
    least = loss.log_slope(ends[inside]) + np.log(delta[inside]) - kappa * delta[inside] / 2
    assert (lost >= least - 16 * EPS * (1 + np.abs(least) + np.abs(ends[inside]))).all()


def test_only_the_sigmoid_loss_is_not_convex() -> None:
    assert [name for name, loss in LOSSES.items() if loss.steepening(-1.0, 1.0) > 0] == ["sigmoid"]
    assert LOSSES["sigmoid"].steepening(0.0, 3.0) == 0
    # Without the factor e^{−κδ/2} the bound is false, because the slope of the sigmoid loss is steepest at 0.
    _, lost = LOSSES["sigmoid"].log_excess(np.zeros(1), np.ones(1), np.log(np.array([2.0])))
    assert lost[0] < LOSSES["sigmoid"].log_slope(np.zeros(1))[0] + np.log(2.0)


def test_unknown_loss_is_refused_by_name() -> None:
    assert loss_named("logistic") is LOSSES["logistic"]
    with pytest.raises(InvalidInput, match="'hinge' is not one of logistic, exponential, correlation, sigmoid"):
        loss_named("hinge")
    with pytest.raises(InvalidInput) as refused:
        loss_named("a" * 10_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("loss", LOSSES.values(), ids=str)
def test_no_change_of_the_score_gives_no_change_of_the_loss(loss: Loss) -> None:
    u = np.array([-30.0, 0.0, 30.0, 0.3])
    sign, log_size = loss.log_excess(u, np.zeros(4), np.array([-1e6, 0.0, 2.0, -np.inf]))
    assert (sign == 0).all()
    assert (log_size == -np.inf).all()


def test_the_lipschitz_constant_of_the_slope_on_a_single_point_is_the_curvature() -> None:
    assert [LOSSES[name].log_lipschitz(0.0, 0.0) for name in DRAWN_LOSSES] == pytest.approx(
        [-np.log(4), 0.0, -np.inf, -np.inf]
    )


@pytest.mark.parametrize("loss", LOSSES.values(), ids=str)
def test_no_branch_of_a_formula_for_the_excess_is_infinite(loss: Loss) -> None:
    """A branch that is not taken must be finite too: otherwise NumPy would warn, and PyTorch lose the gradient."""
    u, sign, log_size = (
        x.ravel() for x in np.meshgrid([-800.0, -1.0, 0.0, 1.0, 800.0], [-1.0, 1.0], [-50.0, 0.0, 5.0])
    )
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        assert np.isfinite(loss.log_excess(u, sign, log_size)[1]).all()
