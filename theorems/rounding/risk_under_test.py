"""The risk that an implementation reports, with what a right one may be off by."""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.core.claim import Form, NotANumber, Undecided
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import EXPONENTIAL, AttentionAt
from theorems.rounding.bounded import Bounded, exact, rounded, spacing
from theorems.rounding.softmax import softmax


def risk_of(at: AttentionAt, under_test: Implementation, claim: str, form: Form = Form.EFFECTIVE) -> Bounded:
    """L at the points, (b,): twice what this evaluation loses is allowed, for a kernel twice what its outputs lose too.

    Args:
        claim, form: what is falsified if an entry is no finite number although L is one; undecided if L overflows.
    """
    problem = at.problem
    risk = np.asarray(under_test.risk(problem.keys, problem.scores, problem.loss, at.points))
    allowed = 2 * at.risk.error
    if at.textbook_eps:
        allowed = allowed + 2 * np.mean(problem.loss.value(_textbook_outputs(at)), axis=-1).error
    if not np.isfinite(at.risk.error).all():
        raise Undecided(claim, "the risk overflows float64", form)
    if not np.isfinite(risk).all():
        raise NotANumber(claim, "the risk under test is not finite", form)
    return exact(risk).widened(allowed)


def _textbook_outputs(at: AttentionAt) -> Any:
    """γ_iᵀ s_i, (b, n), as a kernel computes it from raw logits."""
    with spacing(at.textbook_eps, EXPONENTIAL):
        weights = softmax(np.vecdot(rounded(at.problem.keys), rounded(at.points)[:, None, None]))
        return np.sum(weights * rounded(at.problem.scores), axis=-1)
