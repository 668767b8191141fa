"""Checks of the figures of adaptive methods."""

from __future__ import annotations

from collections.abc import Callable

from theorems.adaptive_methods.figures import FULL, SINGLE, WITH_EPSILON
from theorems.faults import fault_named
from theorems.figures.figure import Numbers


def shows_margins(numbers: Numbers) -> bool:
    """Single samples end at w_2 and full batches near w_∞; with ε the run has been nearer to w_∞ than it ends."""
    single, full, turned = (numbers["runs"][label] for label in (SINGLE, FULL, WITH_EPSILON))
    at_ends = single[-1][0] > 0.998 and full[-1][1] > 0.96 > full[-1][0]
    return bool(at_ends and turned[-1][0] > 0.95 and max(y for _, y in turned) > turned[-1][1] + 0.05)


def shows_attention(numbers: Numbers) -> bool:
    """From the ℓ2 direction Adam goes on to the ℓ∞ margin, and normalised descent stays."""
    adam, normalised = numbers["runs"]["Adam"][-1], numbers["runs"]["normalised"][-1]
    start = numbers["solutions"][0]
    return bool(adam[1] > start[1] + 0.5 * (1 - start[1]) and normalised[0] > 0.995)


CHECKS: dict[str, Callable[[Numbers], bool]] = {"adam-margins": shows_margins, "adam-attention": shows_attention}
"""By the name of the figure: whether its numbers show what it is to show."""
WRONG = {"adam-margins": fault_named("adam-turns-an-entry").implementation}
"""The fault that the numbers of a figure without attention must show."""
