"""The interface of a loss ℓ(u): value, derivative and change over a step, in logarithms where they can underflow.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption A.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from array_api_compat import array_namespace

Array = Any
"""A float64 NumPy array or torch tensor, or an array that carries its rounding error (:mod:`.array_functions`)."""


class Loss(ABC):
    """A loss ℓ(u) of the signed output u = Y f(X), where Y = ±1 is the label and f(X) the output of the model.

    Quantities that can underflow are available as logarithms. If the softmax weights of other tokens are e^{−1000}, ℓ
    rounds to its limit, but the logarithm of its distance from this limit keeps all digits.
    """

    name: str

    @abstractmethod
    def value(self, u: Array) -> Array:
        """Return ℓ(u)."""

    @abstractmethod
    def log_slope(self, u: Array) -> Array:
        """Return log |ℓ'(u)|."""

    def derivative(self, u: Array) -> Array:
        """Return ℓ'(u), which is negative."""
        return -array_namespace(u).exp(self.log_slope(u))

    @abstractmethod
    def relative_curvature(self, u: Array) -> Array:
        """Return ℓ''(u) / |ℓ'(u)|, negative where ℓ is concave.

        Its absolute value is at most 1 for the losses of Assumption A in this package.
        """

    @abstractmethod
    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        """Return the sign of ℓ(u − δ) − ℓ(u) and the logarithm of its absolute value, for δ = sign·e^{log_size}.

        Args:
            u: the point from which the step −δ is taken.
            sign: −1, 0 or +1, the sign of δ; the excess has the same sign because ℓ decreases.
            log_size: log |δ|.

        Returns:
            ``(sign, log |ℓ(u − δ) − ℓ(u)|)``; exact to rounding however small δ is.
        """

    @abstractmethod
    def log_lipschitz(self, low: float, high: float) -> float:
        """Return log M0, where M0 is the Lipschitz constant of ℓ' on [low, high]; −inf if ℓ' is constant there."""

    @abstractmethod
    def log_bound(self, low: float, high: float) -> float:
        """Return log M1, where M1 is the largest |ℓ'| on [low, high]."""

    @abstractmethod
    def log_floor(self, low: float, high: float) -> float:
        """Return the logarithm of the smallest |ℓ'| on [low, high]."""

    @abstractmethod
    def steepening(self, low: float, high: float) -> float:
        """Return the least κ ≥ 0 with d log |ℓ'| / du ≤ κ on [low, high]; it is 0 if and only if ℓ is convex there.

        Where ℓ is not convex, its increase from u to u − δ, δ > 0, can be less than |ℓ'(u)| δ. But if u − δ and u lie
        in [low, high], then ℓ(u − δ) − ℓ(u) ≥ |ℓ'(u)| δ e^{−κδ/2}, because |ℓ'(u − x)| ≥ |ℓ'(u)| e^{−κx} for 0 ≤ x ≤ δ
        and (1 − e^{−y})/y ≥ e^{−y/2} for y > 0.
        """

    def __repr__(self) -> str:
        """Return ``<NAME loss>``."""
        return f"<{self.name} loss>"
