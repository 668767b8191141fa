"""Checks of the figures of adaptive methods."""

from __future__ import annotations

from collections.abc import Callable

from theorems.adaptive_methods.figures import FULL, SINGLE, WITH_EPSILON
from theorems.faults import fault_named
from theorems.figures.figure import Numbers


def shows_margins(numbers: Numbers) -> bool:
    """Return whether single samples lead to the ℓ2 solution w_2 and full batches near the ℓ∞ solution w_∞, and the run
    with ε goes first towards w_∞ and then away from it.
    """
    single, full, turned = (numbers["runs"][label] for label in (SINGLE, FULL, WITH_EPSILON))
    at_ends = single[-1][0] > 0.998 and full[-1][1] > 0.96 > full[-1][0]
    return bool(at_ends and turned[-1][0] > 0.95 and max(y for _, y in turned) > turned[-1][1] + 0.05)


def shows_attention(numbers: Numbers) -> bool:
    """Return whether Adam's ℓ∞ margin rises half-way to the largest, while normalised descent keeps its ℓ2 margin."""
    adam, normalised = numbers["runs"]["Adam"][-1], numbers["runs"]["normalised"][-1]
    start = numbers["solutions"][0]
    return bool(adam[1] > start[1] + 0.5 * (1 - start[1]) and normalised[0] > 0.995)


CHECKS: dict[str, Callable[[Numbers], bool]] = {"adam-margins": shows_margins, "adam-attention": shows_attention}
"""For each figure, the function that decides whether its numbers show the intended effect."""
WRONG = {"adam-margins": fault_named("adam-turns-an-entry").implementation}
"""For each figure whose runs use no attention, a planted fault that the check of the figure must notice."""
