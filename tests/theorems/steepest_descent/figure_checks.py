"""Checks of the figure on steepest descent."""

from __future__ import annotations

from collections.abc import Callable

from theorems.figures.figure import Numbers


def shows_norms(numbers: Numbers) -> bool:
    """Return whether margin gaps end below their proven bounds, these are below 0.1, and the four norms select three
    different tokens.
    """
    curves = numbers["curves"]
    last = [(curve["measured"][-1], curve["guarantee"][-1]) for curve in curves]
    below = all(None not in pair and pair[0] <= pair[1] < 0.1 for pair in last)
    return below and [curve["selected"] for curve in curves] == [5, 5, 3, 4]


CHECKS: dict[str, Callable[[Numbers], bool]] = {"norms": shows_norms}
"""For each figure, the function that decides whether its numbers show the intended effect."""
