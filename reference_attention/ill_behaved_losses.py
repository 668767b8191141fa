"""Losses that violate Assumption A and show why it is needed; no theorem covers them.

Each loss reports a point where the assumption fails. These losses can be looked up by name, but
:data:`reference_attention.losses.LOSSES` does not contain them, so a strategy draws them only if it names them.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption A; FINDINGS.md on ℓ' = 0 at a point.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from reference_attention.array_functions import at_most, by_sign, log_abs, log_of, namespace, namespace_of, pieces
from reference_attention.loss import Array, Loss


class IllBehavedLoss(Loss):
    """A loss for which ℓ' < 0, or the Lipschitz continuity of ℓ', fails somewhere.

    Attributes:
        decreasing: whether ℓ nevertheless decreases strictly.
    """

    decreasing: bool

    @abstractmethod
    def defect(self, low: float, high: float) -> str:
        """Return a text that names a place on [low, high] where Assumption A fails; empty if A holds there."""

    @abstractmethod
    def derivative(self, u: Array) -> Array:
        """Return ℓ'(u), of either sign."""

    def log_slope(self, u: Array) -> Array:
        """Return log |ℓ'(u)|."""
        return log_abs(self.derivative(u))


class Squared(IllBehavedLoss):
    """The loss ℓ(u) = (1 − u)²/2, which increases beyond u = 1: a score can be too good."""

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
        # At u = 1 the second factor is δ/2, also where δ underflows.
        size = log_size + xp.where(u == 1, log_size + log_of(0.5, log_size), log_abs(factor))
        return xp.where(u == 1, xp.abs(sign), sign * xp.sign(factor)), by_sign(xp, sign, size, size)

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return log M0 = 0, since ℓ'' = 1."""
        return 0.0

    def log_bound(self, low: float, high: float) -> float:
        """Return log max(|low − 1|, |high − 1|)."""
        largest = max(abs(low - 1), abs(high - 1))
        return math.log(largest) if largest else -math.inf

    def log_floor(self, low: float, high: float) -> float:
        """Return the logarithm of the least |u − 1| on [low, high], −inf if the interval contains 1."""
        return -math.inf if low <= 1 <= high else math.log(min(abs(low - 1), abs(high - 1)))

    def steepening(self, low: float, high: float) -> float:
        """Return 0, or +inf where high > 1, since the loss increases there."""
        # Where the loss increases in u, its slope gives no lower bound of ℓ(u − δ) − ℓ(u).
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
        # u³ − (u − δ)³ = δ (3 (u − δ/2)² + δ²/4).
        xp = namespace(u, sign, log_size)
        # At u = 0, u − δ/2 is −δ/2, also where δ underflows.
        half = log_size + log_of(0.5, log_size)
        log_distance = xp.where(u == 0, half, log_abs(u - sign * xp.exp(log_size) / 2))
        size = log_size + xp.logaddexp(log_of(3.0, log_size) + 2 * log_distance, 2 * half)
        return sign, by_sign(xp, sign, size, size)

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return the logarithm of the largest |ℓ''| = 6|u| on [low, high]."""
        largest = max(abs(low), abs(high))
        return math.log(6 * largest) if largest else -math.inf

    def log_bound(self, low: float, high: float) -> float:
        """Return the logarithm of the largest 3u² on [low, high]."""
        largest = max(abs(low), abs(high))
        return math.log(3) + 2 * math.log(largest) if largest else -math.inf

    def log_floor(self, low: float, high: float) -> float:
        """Return the logarithm of the least 3u² on [low, high], −inf if the interval contains 0."""
        return -math.inf if low <= 0 <= high else math.log(3) + 2 * math.log(min(abs(low), abs(high)))

    def steepening(self, low: float, high: float) -> float:
        """Return the largest d log |ℓ'|/du = 2/u: 2/low if low > 0, +inf if low ≤ 0 < high, otherwise 0."""
        # d log|ℓ'|/du = 2/u.
        return 2 / low if low > 0 else math.inf if high > 0 else 0.0

    def defect(self, low: float, high: float) -> str:
        """Return a text that names ℓ'(0) = 0 if [low, high] contains 0, otherwise an empty text."""
        return "ℓ'(0) = 0 is not negative" if low <= 0 <= high else ""


class Kinked(IllBehavedLoss):
    """The loss ℓ(u) = −u for u ≤ 0 and −u/4 beyond: strictly decreasing, |ℓ'| ≤ 1, and ℓ' jumps at 0."""

    name = "kinked"
    decreasing = True

    def value(self, u: Array) -> Array:
        """Return −u for u ≤ 0 and −u/4 beyond."""
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
        this_side = xp.exp(at_most(xp, log_abs(u) - log_size, 0.0))  # share of the way before the kink
        up = pieces(xp, -u, 0.0, 1 - 0.75 * this_side, xp.ones_like(this_side))
        down = pieces(xp, -u, 0.0, xp.full_like(this_side, 0.25), 0.25 + 0.75 * this_side)
        return sign, by_sign(xp, sign, log_size + xp.log(up), log_size + xp.log(down))

    def log_lipschitz(self, low: float, high: float) -> float:
        """Return +inf if ℓ' jumps within the interval, otherwise −inf, since ℓ' is constant."""
        return math.inf if low <= 0 < high else -math.inf

    def log_bound(self, low: float, high: float) -> float:
        """Return the logarithm of the largest |ℓ'|: 0 if the interval begins at or below 0, otherwise −log 4."""
        return 0.0 if low <= 0 else -math.log(4)

    def log_floor(self, low: float, high: float) -> float:
        """Return the logarithm of the least |ℓ'|: −log 4 if the interval reaches above 0, otherwise 0."""
        return -math.log(4) if high > 0 else 0.0

    def steepening(self, low: float, high: float) -> float:
        """Return 0, since ℓ is convex."""
        return 0.0

    def defect(self, low: float, high: float) -> str:
        """Return a text that names the jump of ℓ' at 0 if [low, high] contains 0, otherwise an empty text."""
        return "ℓ' jumps from −1 to −1/4 at 0, so ℓ' is not Lipschitz" if low <= 0 < high else ""


ILL_BEHAVED_LOSSES: dict[str, IllBehavedLoss] = {loss.name: loss for loss in (Squared(), Cubic(), Kinked())}
"""The ill-behaved losses by name."""
