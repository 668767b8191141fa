"""A search, by doubling and bisection, for the smallest number at which a condition holds."""

from __future__ import annotations

import math
from collections.abc import Callable


def smallest(holds: Callable[[float], bool], start: float, upper: float = math.inf) -> float:
    """Return the smallest ρ ≥ ``start`` at which a condition holds, or a number up to 1% larger.

    Args:
        holds: the condition; if it holds at some ρ, it must hold for all larger ρ.
        start: the ρ at which the search begins.
        upper: a ρ at which the condition is known to hold.

    Returns:
        The number ρ, or ∞ if the condition does not hold for any ρ up to 1e250.
    """
    if not start < math.inf or holds(start):
        return start
    low, high = start, min(2 * start, upper)
    while high < upper and not holds(high):
        low, high = high, min(high * max(2.0, high / start), upper)
        if high > 1e250:
            return math.inf
    while high > low * 1.01:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
