"""The norm of a prompt at which attention on given data begins to select."""

from __future__ import annotations

from generators.case import Case
from theorems.explaining.selection import Chosen

REACH = 6.0
"""How far such a drawing goes, in units of the largest key or ‖p_mm‖."""


def size_of(case: Case, best: Chosen) -> float:
    """The norm at which logits are of order one: ‖p_mm‖, or that of the inverse of the keys."""
    return 1 / case.problem.key_scale if best.solution is None else best.solution.norm
