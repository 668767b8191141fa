"""Losses that violate Assumption A and show why the theorems need it; no theorem covers these losses.

Assumption A says that ℓ is strictly decreasing and that ℓ' is Lipschitz and bounded on bounded intervals. Each loss
reports a point where this fails. The losses can be looked up by name, but :data:`reference_attention.losses.LOSSES`
does not contain them, so a strategy draws one only if it names it.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption A; FINDINGS.md on ℓ' = 0 at a point.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from reference_attention.array_functions import at_most, by_sign, log_abs, log_of, namespace, namespace_of, pieces
from reference_attention.loss import Array, Loss


class IllBehavedLoss(Loss):
    """A loss ℓ that violates Assumption A: ℓ' < 0, or the Lipschitz continuity of ℓ', fails at some point.

    Attributes:
        decreasing: whether ℓ nevertheless decreases strictly.
    """

    decreasing: bool

    @abstractmethod
    def defect(self, low: float, high: float) -> str:
        """Return a text that names a point of [low, high] where Assumption A fails; empty if no point does."""

    @abstractmethod
    def derivative(self, u: Array) -> Array:
        """Return ℓ'(u), which may be negative, zero or positive."""

    def log_slope(self, u: Array) -> Array:
        """Return log |ℓ'(u)|."""
        return log_abs(self.derivative(u))


class Squared(IllBehavedLoss):
    """The loss ℓ(u) = (1 − u)²/2, which increases beyond u = 1, so that it also punishes large scores."""

    name = "squared"
    decreasing = False

    def value(self, u: Array) -> Array:
        """Return (1 − u)²/2."""
        return (1 - u) ** 2 / 2

    def derivative(self, u: Array) -> Array:
        """Return ℓ'(u) = u − 1."""
        return u - 1

    def relative_curvature(self, u: Array) -> Array:
        """Return ℓ''(u)/|ℓ'(u)| = 1/|u − 1|."""
        return namespace_of(u).exp(-self.log_slope(u))

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) and the logarithm of its absolute value, for δ = sign·e^{log_size}."""
        # ℓ(u − δ) − ℓ(u) = δ (1 − u + δ/2), so its sign is the product of the signs of both factors.
        xp = namespace(u, sign, log_size)
        factor = 1 - u + sign * xp.exp(log_size) / 2
        # At u = 1 the second factor is δ/2; its logarithm is taken directly, because δ may underflow.
        size = log_size + xp.where(u == 1, log_size + log_of(0.5, log_size), log_abs(factor))
        return xp.where(u == 1, xp.abs(sign), sign * xp.sign(factor)), by_sign(xp, sign, size, size)

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return 0, the logarithm of the Lipschitz constant ℓ'' = 1 of ℓ'."""
        return 0.0

    def log_bound(self, low: float, high: float) -> float:
        """Return the logarithm of the largest |ℓ'| = |u − 1| on [low, high]."""
        largest = max(abs(low - 1), abs(high - 1))
        return math.log(largest) if largest else -math.inf

    def log_floor(self, low: float, high: float) -> float:
        """Return the logarithm of the least |ℓ'| = |u − 1| on [low, high], −inf if the interval contains 1."""
        return -math.inf if low <= 1 <= high else math.log(min(abs(low - 1), abs(high - 1)))

    def steepening(self, low: float, high: float) -> float:
        """Return +inf if high > 1, where the loss increases; otherwise 0, since |ℓ'| decreases in u."""
        # Where ℓ increases in u, its slope at u gives no lower bound of ℓ(u − δ) − ℓ(u).
        return math.inf if high > 1 else 0.0

    def defect(self, low: float, high: float) -> str:
        """Return a text that names the value ℓ'(high) ≥ 0 if high ≥ 1, otherwise an empty text."""
        return f"ℓ'({high:g}) = {high - 1:g} is not negative" if high >= 1 else ""


class Cubic(IllBehavedLoss):
    """The loss ℓ(u) = −u³: strictly decreasing, ℓ' Lipschitz and bounded on bounded intervals, and ℓ'(0) = 0."""

    name = "cubic"
    decreasing = True

    def value(self, u: Array) -> Array:
        """Return −u³."""
        return -(u**3)

    def derivative(self, u: Array) -> Array:
        """Return ℓ'(u) = −3u²."""
        return -3 * u**2

    def relative_curvature(self, u: Array) -> Array:
        """Return ℓ''(u)/|ℓ'(u)| = −2/u."""
        xp = namespace_of(u)
        return -2 * xp.sign(u) * xp.exp(-log_abs(u))

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) and the logarithm of its absolute value, for δ = sign·e^{log_size}."""
        # ℓ(u − δ) − ℓ(u) = u³ − (u − δ)³ = δ (3 (u − δ/2)² + δ²/4).
        xp = namespace(u, sign, log_size)
        # At u = 0, u − δ/2 is −δ/2; its logarithm is taken directly, because δ may underflow.
        half = log_size + log_of(0.5, log_size)
        log_distance = xp.where(u == 0, half, log_abs(u - sign * xp.exp(log_size) / 2))
        size = log_size + xp.logaddexp(log_of(3.0, log_size) + 2 * log_distance, 2 * half)
        return sign, by_sign(xp, sign, size, size)

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return the logarithm of the largest |ℓ''| = 6|u| on [low, high]."""
        largest = max(abs(low), abs(high))
        return math.log(6 * largest) if largest else -math.inf

    def log_bound(self, low: float, high: float) -> float:
        """Return the logarithm of the largest |ℓ'| = 3u² on [low, high]."""
        largest = max(abs(low), abs(high))
        return math.log(3) + 2 * math.log(largest) if largest else -math.inf

    def log_floor(self, low: float, high: float) -> float:
        """Return the logarithm of the least |ℓ'| = 3u² on [low, high], −inf if the interval contains 0."""
        return -math.inf if low <= 0 <= high else math.log(3) + 2 * math.log(min(abs(low), abs(high)))

    def steepening(self, low: float, high: float) -> float:
        """Return the largest d log |ℓ'|/du = 2/u: 2/low if low > 0, +inf if low ≤ 0 < high, otherwise 0."""
        # The derivative of log |ℓ'| is 2/u; as u falls to 0 it grows without bound.
        return 2 / low if low > 0 else math.inf if high > 0 else 0.0

    def defect(self, low: float, high: float) -> str:
        """Return a text that names ℓ'(0) = 0 if [low, high] contains 0, otherwise an empty text."""
        return "ℓ'(0) = 0 is not negative" if low <= 0 <= high else ""


class Kinked(IllBehavedLoss):
    """The loss ℓ(u) = −u for u ≤ 0 and −u/4 for u > 0: strictly decreasing, |ℓ'| ≤ 1, and ℓ' jumps at 0."""

    name = "kinked"
    decreasing = True

    def value(self, u: Array) -> Array:
        """Return −u for u ≤ 0 and −u/4 for u > 0."""
        return namespace_of(u).maximum(-u / 4, -u)

    def derivative(self, u: Array) -> Array:
        """Return ℓ'(u), at the kink the left derivative."""
        xp = namespace_of(u)
        return pieces(xp, -u, 0.0, xp.full_like(u, -0.25), xp.full_like(u, -1.0))

    def relative_curvature(self, u: Array) -> Array:
        """Return 0, since ℓ is linear on either side of the kink."""
        return namespace_of(u).zeros_like(u)

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) and the logarithm of its absolute value, for δ = sign·e^{log_size}."""
        # ℓ has slope −1 below the kink and −1/4 above it, so the parts of [u − δ, u] below and above it have weights 1
        # and 1/4.
        xp = namespace(u, sign, log_size)
        this_side = xp.exp(at_most(xp, log_abs(u) - log_size, 0.0))  # share of the step on u's side of the kink
        up = pieces(xp, -u, 0.0, 1 - 0.75 * this_side, xp.ones_like(this_side))
        down = pieces(xp, -u, 0.0, xp.full_like(this_side, 0.25), 0.25 + 0.75 * this_side)
        return sign, by_sign(xp, sign, log_size + xp.log(up), log_size + xp.log(down))

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return +inf if ℓ' jumps within the interval, otherwise −inf, since ℓ' is constant there."""
        return math.inf if low <= 0 < high else -math.inf

    def log_bound(self, low: float, high: float) -> float:
        """Return the logarithm of the largest |ℓ'|: 0 if the interval begins at or below 0, otherwise −log 4."""
        return 0.0 if low <= 0 else -math.log(4)

    def log_floor(self, low: float, high: float) -> float:
        """Return the logarithm of the least |ℓ'|: −log 4 if the interval reaches above 0, otherwise 0."""
        return -math.log(4) if high > 0 else 0.0

    def steepening(self, low: float, high: float) -> float:
        """Return 0: |ℓ'| does not increase in u, since ℓ is convex."""
        return 0.0

    def defect(self, low: float, high: float) -> str:
        """Return a text that names the jump of ℓ' at 0 if [low, high] contains 0, otherwise an empty text."""
        return "ℓ' jumps from −1 to −1/4 at 0, so ℓ' is not Lipschitz" if low <= 0 < high else ""


ILL_BEHAVED_LOSSES: dict[str, IllBehavedLoss] = {loss.name: loss for loss in (Squared(), Cubic(), Kinked())}
"""The ill-behaved losses by name."""
