"""The softmax weights of an implementation, with what right ones may be off by."""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.core.claim import Form, NotANumber
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import EXPONENTIAL, AttentionAt
from theorems.rounding.bounded import Bounded, exact, rounded, spacing
from theorems.rounding.softmax import softmax


def weights_of(at: AttentionAt, under_test: Implementation, claim: str, form: Form = Form.EFFECTIVE) -> Any:
    """s_t under test, (b, n, T).

    An implementation is allowed twice what this evaluation loses, a textbook kernel also twice what its own formula
    loses in its numbers: theirs may be another one.

    Args:
        claim, form: what is falsified if an entry is no finite number.
    """
    weights = np.asarray(under_test.weights(at.problem.keys, at.points), dtype=np.float64)
    if not isinstance(at.weights, Bounded):
        return weights
    if not np.isfinite(weights).all():
        raise NotANumber(claim, "a softmax weight under test is not finite", form)
    allowed = 2 * at.weights.error
    if at.textbook_eps:
        with spacing(at.textbook_eps, EXPONENTIAL):
            logits: Any = np.vecdot(rounded(at.problem.keys), rounded(at.points)[:, None, None])
            allowed = allowed + 2 * softmax(logits).error
    return exact(weights).widened(np.where(np.isnan(allowed), np.inf, allowed))
