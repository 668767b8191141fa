"""Exact losses, slopes and curvatures in ball arithmetic, with which the float64 formulas are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flint import arb

Truth = Callable[[Any], Any]


def log_size(x: Any) -> Any:
    return abs(x).log() if x != 0 else -arb("inf")


VALUES: dict[str, Truth] = {
    "logistic": lambda u: (-u).exp().log1p(),
    "exponential": lambda u: (-u).exp(),
    "correlation": lambda u: -u,
    "sigmoid": lambda u: 1 / (1 + u.exp()),
    "squared": lambda u: (1 - u) ** 2 / 2,
    "cubic": lambda u: -(u**3),
    "kinked": lambda u: -u / 4 if u > 0 else -u,
}
SLOPES: dict[str, Truth] = {
    "logistic": lambda u: -1 / (1 + u.exp()),
    "exponential": lambda u: -(-u).exp(),
    "correlation": lambda u: arb(-1),
    "sigmoid": lambda u: -1 / ((1 + u.exp()) * (1 + (-u).exp())),
    "squared": lambda u: u - 1,
    "cubic": lambda u: -3 * u**2,
    "kinked": lambda u: arb(-0.25) if u > 0 else arb(-1),
}
CURVATURES: dict[str, Truth] = {
    "logistic": lambda u: 1 / (1 + (-u).exp()),
    "exponential": lambda u: arb(1),
    "correlation": lambda u: arb(0),
    "sigmoid": lambda u: (u / 2).tanh(),
    "squared": lambda u: 1 / abs(u - 1) if u != 1 else arb("inf"),
    "cubic": lambda u: -2 / u if u != 0 else arb("nan"),
    "kinked": lambda u: arb(0),
}


LOG_SLOPES: dict[str, Truth] = {
    "logistic": lambda u: -u.exp().log1p(),
    "exponential": lambda u: -u,
    "correlation": lambda u: arb(0),
    "sigmoid": lambda u: -u.exp().log1p() - (-u).exp().log1p(),
    "squared": lambda u: log_size(u - 1),
    "cubic": lambda u: log_size(3 * u**2),
    "kinked": lambda u: -arb(4).log() if u > 0 else arb(0),
}
