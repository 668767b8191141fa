"""The norm of a prompt at which attention on given data begins to select."""

from __future__ import annotations

from generators.case import Case
from theorems.explanations.selection import Chosen

REACH = 6.0
"""Extent of the drawing of a case, in units of the largest key or ‖p_mm‖."""


def size_of(case: Case, best: Chosen) -> float:
    """Return the norm at which logits are of order one: ‖p_mm‖, or the inverse of the keys' scale without p_mm."""
    return 1 / case.problem.key_scale if best.solution is None else best.solution.norm
