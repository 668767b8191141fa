"""The softmax weights of the implementation under test and their sum, with the errors that correct ones may have."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_attention.risk import softmax_weights
from theorems.bounded import Bounded, exact, spacing, value_of
from theorems.core.claim import Form, NotANumber
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt


def weights_of(at: AttentionAt, under_test: Implementation, claim: str, form: Form = Form.EFFECTIVE) -> Any:
    """Return the weights s_t under test, (b, n, T), with the error that correct weights may have.

    Args:
        at: attention at the points.
        under_test: the implementation whose ``softmax_weights`` is called.
        claim: the name of the claim that is falsified if an entry is not a finite number.
        form: the form of that claim.
    """
    weights = np.asarray(under_test[softmax_weights](at.problem.keys, at.points), dtype=np.float64)
    if not isinstance(at.weights, Bounded):
        return weights
    if not np.isfinite(weights).all():
        raise NotANumber(claim, "a softmax weight under test is not finite", form)
    allowed = at.weights_room()
    return exact(weights).widen(np.where(np.isnan(allowed), np.inf, allowed))


def total_of(at: AttentionAt, weights: Any) -> Any:
    """Return the sum over t of the weights under test, (b, n), with the error that the sum of correct weights may have.

    This error is smaller than the sum of the errors of single weights: errors of logits do not matter, because the
    exponentials are divided by their sum. It is twice the rounding error of the sum for given logits. For a textbook
    kernel, twice the rounding error of sum and division for given exponentials is added, which covers a running sum
    that is rescaled at every token.
    """
    logits = exact(value_of(at.log_weights))
    allowed = 2 * np.sum(np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)), axis=-1).error
    if at.textbook_eps:
        with spacing(at.textbook_eps):
            exponentials = exact(at.weights.value)
            shares = exponentials / np.sum(exponentials, axis=-1, keepdims=True)
            allowed = allowed + 2 * np.sum(shares, axis=-1).error
    total: Any = np.sum(exact(value_of(weights)), axis=-1)
    return total.widen(allowed)
