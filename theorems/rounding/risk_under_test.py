"""The risk that an implementation reports, with what a right one may be off by."""

from __future__ import annotations

import numpy as np

from theorems.bounded import Bounded, exact
from theorems.core.claim import Form, NotANumber, Undecided
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt


def risk_of(at: AttentionAt, under_test: Implementation, claim: str, form: Form = Form.EFFECTIVE) -> Bounded:
    """L at the points, (b,); unknown where it overflows float64.

    Args:
        claim, form: what is falsified if an entry is no finite number although L is one; undecided if L overflows
            everywhere.
    """
    problem = at.problem
    risk = np.asarray(under_test.risk(problem.keys, problem.scores, problem.loss, at.points))
    known = np.isfinite(at.risk.error)
    if not known.any():
        raise Undecided(claim, "the risk overflows float64", form)
    if not np.isfinite(risk[known]).all():
        raise NotANumber(claim, "the risk under test is not finite", form)
    return exact(np.where(known, risk, 0.0)).widen(np.where(known, at.risk_room(), np.inf))
