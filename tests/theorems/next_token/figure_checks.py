"""Checks of the figure of next-token training."""

from __future__ import annotations

from collections.abc import Callable

from theorems.core.implementation import Implementation
from theorems.faults import fault_named
from theorems.figures.figure import Numbers


def shows_next_tokens(numbers: Numbers) -> bool:
    """Return whether both runs turn to the SVM's W^mm, and their parts in the subspace F of the finite minimiser
    converge like 1/k with gradient descent but oscillate with normalized descent.
    """
    plain, normalized = numbers["curves"]
    late = numbers["steps"].index(next(k for k in numbers["steps"] if k >= 1000))
    turned = all(curve["turned"][-1] < curve["turned"][late] < 0.01 for curve in (plain, normalized))
    shrinks = plain["apart"][-1] * numbers["steps"][-1] / (plain["apart"][late] * numbers["steps"][late])
    near = abs(plain["apart"][-1] / plain["follows"][-1] - 1) < 0.01
    stays = abs(normalized["apart"][-1] / numbers["chatter"] - 1) < 0.05
    return bool(turned and 0.5 < shrinks < 2 and near and stays)


CHECKS: dict[str, Callable[[Numbers], bool]] = {"next-tokens": shows_next_tokens}
"""For each figure, the function that decides whether its numbers show the intended effect."""
WRONG: dict[str, Implementation] = {"next-tokens": fault_named("finite-part-frozen").implementation}
"""For each figure, a planted fault that the figure's check must notice."""
