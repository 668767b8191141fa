"""The norm of a prompt at which softmax weights begin to differ clearly, as a unit for starts, norms and drawings."""

from __future__ import annotations

from generators.case import Case
from theorems.explanations.selection import Chosen

REACH = 6.0
"""Distance from 0 to the edge of a drawing, in units of the larger of the largest key's norm and ‖p_mm‖."""


def prompt_scale(case: Case, best: Chosen) -> float:
    """Return the norm at which logits are of order one: ‖p_mm‖ of ``best``, else about 1/max |key entry|."""
    return 1 / case.problem.key_scale if best.solution is None else best.solution.norm
