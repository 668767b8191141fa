"""Checks of the figure of the paper."""

from __future__ import annotations

from collections.abc import Callable

from theorems.core.implementation import Implementation
from theorems.faults import fault_named
from theorems.figures.figure import Numbers


def shows_next_tokens(numbers: Numbers) -> bool:
    """Both turn to W^mm; under descent the part in F falls like 1/k, as what it follows; normalized it chatters."""
    plain, normalized = numbers["curves"]
    late = numbers["steps"].index(next(k for k in numbers["steps"] if k >= 1000))
    turned = all(curve["turned"][-1] < curve["turned"][late] < 0.01 for curve in (plain, normalized))
    shrinks = plain["apart"][-1] * numbers["steps"][-1] / (plain["apart"][late] * numbers["steps"][late])
    near = abs(plain["apart"][-1] / plain["follows"][-1] - 1) < 0.01
    stays = abs(normalized["apart"][-1] / numbers["chatter"] - 1) < 0.05
    return bool(turned and 0.5 < shrinks < 2 and near and stays)


CHECKS: dict[str, Callable[[Numbers], bool]] = {"next-tokens": shows_next_tokens}
"""By the name of the figure: whether its numbers show what it is to show."""
WRONG: dict[str, Implementation] = {"next-tokens": fault_named("finite-part-frozen").implementation}
"""A fault per figure that its numbers must show."""
