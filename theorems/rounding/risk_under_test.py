"""The risk computed by the implementation under test, with the error that a correct implementation may have."""

from __future__ import annotations

import numpy as np

from reference_attention.risk import risk
from theorems.bounded import Bounded, exact
from theorems.core.claim import Form, NotANumber, Undecided
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt


def risk_of(at: AttentionAt, under_test: Implementation, claim: str, form: Form = Form.EFFECTIVE) -> Bounded:
    """Return the risk under test, (b,), with the error that a correct one may have; the error is ∞ where L overflows.

    Args:
        at: attention at the points.
        under_test: the implementation whose ``risk`` is called.
        claim: the name of the claim that is falsified by :class:`NotANumber` or undecided by :class:`Undecided`.
        form: the form of that claim.

    Raises:
        NotANumber: an entry is not a finite number, although L is finite.
        Undecided: L overflows at all points.
    """
    problem = at.problem
    value = np.asarray(under_test[risk](problem.keys, problem.scores, problem.loss, at.points))
    finite = np.isfinite(at.risk.error)
    if not finite.any():
        raise Undecided(claim, "the risk overflows float64", form)
    if not np.isfinite(value[finite]).all():
        raise NotANumber(claim, "the risk under test is not finite", form)
    return exact(np.where(finite, value, 0.0)).widen(np.where(finite, at.risk_room(), np.inf))
