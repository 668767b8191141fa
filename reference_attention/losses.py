"""Losses of Assumption A: strictly decreasing, with a Lipschitz and bounded derivative on bounded intervals.

Every formula is written once and runs on NumPy arrays and on torch tensors alike.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption A.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from reference_attention.errors import InvalidInput
from reference_attention.ill_behaved_losses import ILL_BEHAVED_LOSSES
from reference_attention.loss import Array, Loss

_NUMPY = array_namespace(np.empty(0))


SMALLEST = 2.0**-1022
"""The smallest normal float: it keeps the logarithm of a branch not taken finite."""


def _at_most(xp: Any, x: Array, bound: float) -> Array:
    return np.minimum(x, bound) if xp is _NUMPY else xp.clip(x, max=bound)


def _at_least(xp: Any, x: Array, bound: float) -> Array:
    return np.maximum(x, bound) if xp is _NUMPY else xp.clip(x, min=bound)


def _log_expm1(xp: Any, log_x: Array) -> Array:
    """log(e^x − 1) for x = e^{log_x} > 0."""
    x = xp.exp(_at_most(xp, log_x, 700.0))
    small = x < 1e-8
    large = x > 37.0  # e^{−37} is below rounding
    safe = xp.where(small | large, xp.ones_like(x), x)
    middle = xp.log(xp.expm1(safe))
    return xp.where(small, log_x + x / 2, xp.where(large, x, middle))


def _log_one_minus_exp(xp: Any, log_x: Array) -> Array:
    """log(1 − e^{−x}) for x = e^{log_x} > 0."""
    x = xp.exp(_at_most(xp, log_x, 700.0))
    small = x < 1e-8
    safe = xp.where(small, xp.ones_like(x), x)
    return xp.where(small, log_x - x / 2, xp.log(-xp.expm1(-safe)))


def _softplus(xp: Any, x: Array) -> Array:
    """log(1 + e^x)."""
    return xp.logaddexp(xp.zeros_like(x), x)


class Logistic(Loss):
    """ℓ(u) = log(1 + e^{−u})."""

    name = "logistic"

    def value(self, u: Array) -> Array:
        return _softplus(array_namespace(u), -u)

    def log_slope(self, u: Array) -> Array:
        return -_softplus(array_namespace(u), u)

    def relative_curvature(self, u: Array) -> Array:
        # ℓ'' = σ(u) σ(−u) and |ℓ'| = σ(−u).
        xp = array_namespace(u)
        return xp.exp(-_softplus(xp, -u))

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        # ℓ(u−δ) − ℓ(u) = log1p(σ(−u) expm1(δ)); both branches are kept in logarithms.
        xp = array_namespace(u)
        log_sigma = self.log_slope(u)
        # δ > 0: y = log(σ(−u)(e^δ − 1)), the excess is log(1 + e^y).
        y = log_sigma + _log_expm1(xp, log_size)
        up = xp.where(y < -20.0, y - xp.exp(_at_most(xp, y, 0.0)) / 2, xp.log(_softplus(xp, _at_least(xp, y, -20.0))))
        # δ < 0: z = log(σ(−u)(1 − e^{−|δ|})) < 0, the excess is −log(1 − e^z) = e^z + e^{2z}/2 + …; where e^z is
        # near one (u ≪ 0), 1 − e^z = σ(u) + σ(−u) e^{−|δ|} does not cancel.
        z = log_sigma + _log_one_minus_exp(xp, log_size)
        middle = -xp.log1p(-xp.exp(_at_least(xp, _at_most(xp, z, -0.5), -20.0)))
        far = -xp.logaddexp(-_softplus(xp, -u), log_sigma - xp.exp(_at_most(xp, log_size, 700.0)))
        near = z + xp.exp(_at_most(xp, z, 0.0)) / 2
        # Clamped where not taken, so that no branch is infinite.
        down = xp.where(z < -20.0, near, xp.log(xp.where(z < -0.5, middle, _at_least(xp, far, SMALLEST))))
        return sign, xp.where(sign > 0, up, xp.where(sign < 0, down, xp.full_like(down, -math.inf)))

    def log_lipschitz(self, low: float, high: float) -> float:
        # |ℓ''| = σ(u)σ(−u) is largest at the point of the interval nearest to zero.
        nearest = abs(min(max(0.0, low), high))
        return -nearest - 2 * math.log1p(math.exp(-nearest))

    def log_bound(self, low: float, high: float) -> float:
        return -_softplus_scalar(low)

    def log_floor(self, low: float, high: float) -> float:
        return -_softplus_scalar(high)


class Exponential(Loss):
    """ℓ(u) = e^{−u}."""

    name = "exponential"

    def value(self, u: Array) -> Array:
        return array_namespace(u).exp(-u)

    def log_slope(self, u: Array) -> Array:
        return -u

    def relative_curvature(self, u: Array) -> Array:
        return array_namespace(u).ones_like(u)

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        # ℓ(u−δ) − ℓ(u) = e^{−u} expm1(δ).
        xp = array_namespace(u)
        up = -u + _log_expm1(xp, log_size)
        down = -u + _log_one_minus_exp(xp, log_size)
        return sign, xp.where(sign > 0, up, xp.where(sign < 0, down, xp.full_like(down, -math.inf)))

    def log_lipschitz(self, low: float, high: float) -> float:
        return -low

    def log_bound(self, low: float, high: float) -> float:
        return -low

    def log_floor(self, low: float, high: float) -> float:
        return -high


class Correlation(Loss):
    """ℓ(u) = −u."""

    name = "correlation"

    def value(self, u: Array) -> Array:
        return -u

    def log_slope(self, u: Array) -> Array:
        return array_namespace(u).zeros_like(u)

    def relative_curvature(self, u: Array) -> Array:
        return array_namespace(u).zeros_like(u)

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        xp = array_namespace(u)
        return sign, xp.where(sign == 0, xp.full_like(log_size, -math.inf), log_size)

    def log_lipschitz(self, low: float, high: float) -> float:
        return -math.inf

    def log_bound(self, low: float, high: float) -> float:
        return 0.0

    def log_floor(self, low: float, high: float) -> float:
        return 0.0


def _softplus_scalar(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Logistic(), Exponential(), Correlation())}
"""The losses by name."""


def loss_named(name: str) -> Loss:
    """The loss of that name; also one of :mod:`reference_attention.ill_behaved_losses`, which violate Assumption A.

    Raises:
        InvalidInput: for any other name.
    """
    try:
        return LOSSES.get(name) or ILL_BEHAVED_LOSSES[name]
    except (KeyError, TypeError):
        raise InvalidInput(f"loss: {name!r} is not one of {', '.join(LOSSES)}.") from None
