"""The losses of Assumption A: strictly decreasing, with a Lipschitz and bounded derivative on bounded intervals.

Every formula is written once, and runs on NumPy arrays, on torch tensors, and on arrays that carry a bound of their
rounding error. Below, σ(u) = 1/(1 + e^{−u}) is the sigmoid function.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption A.
"""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np

from reference_attention.array_functions import (
    LARGEST_EXPONENT,
    at_least,
    at_most,
    by_sign,
    exp,
    namespace,
    namespace_of,
    off_by,
    pieces,
)
from reference_attention.errors import InvalidInput
from reference_attention.ill_behaved_losses import ILL_BEHAVED_LOSSES
from reference_attention.loss import Array, Loss

SMALLEST = 2.0**-1022
"""The smallest normal float. Arguments are raised to it where a branch of a formula is not used, so that the branch
stays finite."""
MANY = 64
"""Least array size for which NumPy's exp and log1p (vectorised) are faster than its logaddexp (not vectorised)."""


def _log_expm1(xp: Any, log_x: Array) -> Array:
    """Return log(e^x − 1) for x = e^{log_x} > 0.

    For small x the formula log x + x/2 is used, whose error is below x²/24; for large x the result is x, with an error
    below 1.01 e^{−x}.
    """
    x = exp(xp, log_x)
    safe = xp.where((x < 1e-8) | (x > 37.0), xp.ones_like(x), x)
    large = pieces(xp, x, 37.0, xp.log(xp.expm1(safe)), off_by(x, 1e-16))
    return pieces(xp, x, 1e-8, off_by(log_x + x / 2, 5e-18), large)


def _log_one_minus_exp(xp: Any, log_x: Array) -> Array:
    """Return log(1 − e^{−x}) for x = e^{log_x} > 0.

    For small x the formula log x − x/2 is used, whose error is below x²/24. For x > e^700 the value at e^700 is used;
    the difference is far below a rounding error.
    """
    x = xp.exp(at_most(xp, log_x, LARGEST_EXPONENT))
    safe = xp.where(x < 1e-8, xp.ones_like(x), x)
    return pieces(xp, x, 1e-8, off_by(log_x - x / 2, 5e-18), xp.log(-xp.expm1(-safe)))


def _softplus(xp: Any, x: Array) -> Array:
    """Return log(1 + e^x)."""
    if xp is np and x.size > MANY:
        return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0)
    return np.logaddexp(0.0, x) if xp is np else xp.logaddexp(xp.zeros_like(x), x)


class Logistic(Loss):
    """The logistic loss ℓ(u) = log(1 + e^{−u})."""

    name = "logistic"

    def value(self, u: Array) -> Array:
        """Return log(1 + e^{−u})."""
        return _softplus(namespace_of(u), -u)

    def log_slope(self, u: Array) -> Array:
        """Return log |ℓ'(u)| = −log(1 + e^u)."""
        return -_softplus(namespace_of(u), u)

    def relative_curvature(self, u: Array) -> Array:
        """Return ℓ''(u)/|ℓ'(u)| = σ(u)."""
        # ℓ'' = σ(u) σ(−u) and |ℓ'| = σ(−u).
        xp = namespace_of(u)
        return xp.exp(-_softplus(xp, -u))

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) and the logarithm of its absolute value, for δ = sign·e^{log_size}."""
        # ℓ(u−δ) − ℓ(u) = log(1 + σ(−u) (e^δ − 1)); for either sign of δ it is computed from logarithms.
        xp = namespace(u, sign, log_size)
        log_sigma = self.log_slope(u)
        # δ > 0: with y = log(σ(−u)(e^δ − 1)) the excess is log(1 + e^y); its logarithm is y − e^y/2 up to an error of
        # 5/24 e^{2y}.
        y = log_sigma + _log_expm1(xp, log_size)
        small = off_by(y - xp.exp(at_most(xp, y, 0.0)) / 2, 1e-18)
        up = pieces(xp, y, -20.0, small, xp.log(_softplus(xp, at_least(xp, y, -20.0))))
        if xp is np and np.all(sign > 0):
            return sign, up
        # δ < 0: with z = log(σ(−u)(1 − e^{−|δ|})) < 0 the excess has the size −log(1 − e^z) = e^z + e^{2z}/2 + …; its
        # logarithm is z + e^z/2 up to an error of 5/24 e^{2z}. Where e^z is near one (u ≪ 0), 1 − e^z is computed as
        # σ(u) + σ(−u) e^{−|δ|}, without cancellation.
        z = log_sigma + _log_one_minus_exp(xp, log_size)
        middle = -xp.log1p(-xp.exp(at_least(xp, at_most(xp, z, -0.5), -20.0)))
        far = -xp.logaddexp(-_softplus(xp, -u), log_sigma - exp(xp, log_size))
        near = off_by(z + xp.exp(at_most(xp, z, 0.0)) / 2, 1e-18)
        # The formulas for all cases are evaluated for every entry. Arguments are clamped where a formula is not used,
        # so that it stays finite.
        large = xp.log(pieces(xp, z, -0.5, middle, at_least(xp, far, SMALLEST)))
        return sign, by_sign(xp, sign, up, pieces(xp, z, -20.0, near, large))

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return the logarithm of the largest ℓ'' = σ(u)σ(−u) on [low, high]."""
        # ℓ'' = σ(u)σ(−u) is largest at the point of the interval nearest to zero.
        return _log_sigmoid_slope(_sizes(low, high)[0])

    def log_bound(self, low: float, high: float) -> float:
        """Return log |ℓ'(low)|, since |ℓ'| is largest at the lower end."""
        return -_softplus_scalar(low)

    def log_floor(self, low: float, high: float) -> float:
        """Return log |ℓ'(high)|, since |ℓ'| is smallest at the upper end."""
        return -_softplus_scalar(high)

    def steepening(self, low: float, high: float) -> float:
        """Return 0: |ℓ'| does not increase in u, since ℓ is convex."""
        return 0.0


class Exponential(Loss):
    """The exponential loss ℓ(u) = e^{−u}."""

    name = "exponential"

    def value(self, u: Array) -> Array:
        """Return e^{−u}."""
        return namespace_of(u).exp(-u)

    def log_slope(self, u: Array) -> Array:
        """Return log |ℓ'(u)| = −u."""
        return -u

    def relative_curvature(self, u: Array) -> Array:
        """Return ℓ''(u)/|ℓ'(u)| = 1."""
        return namespace_of(u).ones_like(u)

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) and the logarithm of its absolute value, for δ = sign·e^{log_size}."""
        # ℓ(u−δ) − ℓ(u) = e^{−u} (e^δ − 1).
        xp = namespace(u, sign, log_size)
        return sign, by_sign(xp, sign, -u + _log_expm1(xp, log_size), -u + _log_one_minus_exp(xp, log_size))

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return −low, the logarithm of the largest ℓ'' = e^{−u} on [low, high]."""
        return -low

    def log_bound(self, low: float, high: float) -> float:
        """Return −low, the logarithm of the largest |ℓ'| = e^{−u} on [low, high]."""
        return -low

    def log_floor(self, low: float, high: float) -> float:
        """Return −high, the logarithm of the smallest |ℓ'| = e^{−u} on [low, high]."""
        return -high

    def steepening(self, low: float, high: float) -> float:
        """Return 0: |ℓ'| does not increase in u, since ℓ is convex."""
        return 0.0


class Correlation(Loss):
    """The correlation loss ℓ(u) = −u."""

    name = "correlation"

    def value(self, u: Array) -> Array:
        """Return −u."""
        return -u

    def log_slope(self, u: Array) -> Array:
        """Return log |ℓ'(u)| = 0."""
        return namespace_of(u).zeros_like(u)

    def relative_curvature(self, u: Array) -> Array:
        """Return ℓ''(u)/|ℓ'(u)| = 0."""
        return namespace_of(u).zeros_like(u)

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) = δ and the logarithm of its absolute value."""
        return sign, by_sign(namespace(u, sign, log_size), sign, log_size, log_size)

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return −inf, the logarithm of the Lipschitz constant 0 of ℓ'."""
        return -math.inf

    def log_bound(self, low: float, high: float) -> float:
        """Return 0, the logarithm of |ℓ'| = 1."""
        return 0.0

    def log_floor(self, low: float, high: float) -> float:
        """Return 0, the logarithm of |ℓ'| = 1."""
        return 0.0

    def steepening(self, low: float, high: float) -> float:
        """Return 0, since |ℓ'| is constant."""
        return 0.0


class Sigmoid(Loss):
    """The sigmoid loss ℓ(u) = σ(−u), a smoothed 0–1 loss: concave where u < 0, convex where u > 0."""

    name = "sigmoid"

    def value(self, u: Array) -> Array:
        """Return σ(−u)."""
        xp = namespace_of(u)
        return xp.exp(-_softplus(xp, u))

    def log_slope(self, u: Array) -> Array:
        """Return log |ℓ'(u)| = log σ(u)σ(−u)."""
        # |ℓ'| = σ(u) σ(−u).
        xp = namespace_of(u)
        return -_softplus(xp, u) - _softplus(xp, -u)

    def relative_curvature(self, u: Array) -> Array:
        """Return ℓ''(u)/|ℓ'(u)| = tanh(u/2)."""
        # ℓ'' = |ℓ'| (σ(u) − σ(−u)).
        return namespace_of(u).tanh(u / 2)

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) and the logarithm of its absolute value, for δ = sign·e^{log_size}."""
        # ℓ(u−δ) − ℓ(u) = σ(u) σ(|δ|−u) (1 − e^{−|δ|}) for δ > 0, −σ(−u) σ(|δ|+u) (1 − e^{−|δ|}) for δ < 0.
        xp = namespace(u, sign, log_size)
        size, log_decay = exp(xp, log_size), _log_one_minus_exp(xp, log_size)
        up = log_decay - _softplus(xp, -u) - _softplus(xp, u - size)
        return sign, by_sign(xp, sign, up, log_decay - _softplus(xp, u) - _softplus(xp, -u - size))

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return the logarithm of the largest |ℓ''| = σ(u)σ(−u) tanh|u/2| on [low, high]."""
        # |ℓ''| = σ(u)σ(−u) tanh|u/2| increases with |u| up to |u| = log(2 + √3), where it is √3/18, and decreases
        # beyond.
        nearest, furthest = _sizes(low, high)
        at = min(max(SIGMOID_BEND, nearest), furthest)
        return _log_sigmoid_slope(at) + math.log(math.tanh(at / 2)) if at > 0 else -math.inf

    def log_bound(self, low: float, high: float) -> float:
        """Return log |ℓ'| at the point of [low, high] nearest to zero."""
        return _log_sigmoid_slope(_sizes(low, high)[0])

    def log_floor(self, low: float, high: float) -> float:
        """Return log |ℓ'| at the point of [low, high] furthest from zero."""
        return _log_sigmoid_slope(_sizes(low, high)[1])

    def steepening(self, low: float, high: float) -> float:
        """Return the largest d log |ℓ'|/du = −tanh(u/2) on [low, high], at least 0."""
        # d log|ℓ'|/du = −tanh(u/2) decreases in u, so it is largest at the lower end.
        return max(0.0, -math.tanh(low / 2))


SIGMOID_BEND = math.log(2 + math.sqrt(3))
"""The u > 0 at which |ℓ''| is largest for the sigmoid loss ℓ(u) = σ(−u)."""


def _sizes(low: float, high: float) -> tuple[float, float]:
    """Return the smallest and the largest |u| for u in [low, high]."""
    return abs(min(max(0.0, low), high)), max(abs(low), abs(high))


def _log_sigmoid_slope(size: float) -> float:
    """Return log(σ(u) σ(−u)) at |u| = ``size``, which is log |ℓ'(u)| of the sigmoid loss."""
    return -size - 2 * math.log1p(math.exp(-size))


def _softplus_scalar(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Logistic(), Exponential(), Correlation(), Sigmoid())}
"""The losses of Assumption A by name."""
DRAWN_LOSSES = ("logistic", "exponential", "correlation", "sigmoid")
"""The names of the losses that strategies draw unless they name others. Do not add a new loss to this tuple: that would
change all drawn cases."""


def loss_named(name: str) -> Loss:
    """Return the loss of a name: one of Assumption A, or one of :mod:`.ill_behaved_losses`, which violate Assumption A.

    Raises:
        InvalidInput: no loss has this name.
    """
    try:
        return LOSSES.get(name) or ILL_BEHAVED_LOSSES[name]
    except (KeyError, TypeError):
        raise InvalidInput(f"loss: {reprlib.repr(name)} is not one of {', '.join(LOSSES)}.") from None
