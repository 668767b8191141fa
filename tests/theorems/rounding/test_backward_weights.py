"""The weights of a backward pass, which are recomputed from a stored log-sum-exp and from new logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded import exact, spacing
from theorems.rounding.attention_at import EXPONENTIAL
from theorems.rounding.softmax import recompute_weights, softmax

EPS = 2.0**-52


def test_no_sum_holds_them_to_one() -> None:
    """A backward pass may add logits in another order; a weight near 1 then errs by more than twice the bound for
    weights that sum to one, but is within the bound for recomputed weights.
    """
    beyond, within = 0.0, 0.0
    for seed in range(180, 190):
        rng = np.random.default_rng(seed)
        query, keys = 64 * rng.standard_normal(64), rng.standard_normal((32, 64))
        forward, backward = np.zeros(32), np.zeros(32)
        for j in range(64):
            forward, backward = forward + keys[:, j] * query[j], backward + keys[:, -1 - j] * query[-1 - j]
        again = np.exp(backward - np.logaddexp.reduce(forward))
        with spacing(EPS, EXPONENTIAL):
            logits: Any = np.vecdot(exact(keys), exact(query))
            weights = softmax(logits, updates=1)
            bound = recompute_weights(weights, logits)
        beyond = max(beyond, float(np.max(np.abs(again - weights.value) / (2 * weights.error))))
        within = max(within, float(np.max(np.abs(again - bound.value) / (2 * bound.error))))
    assert beyond > 1
    assert 1e-4 < within <= 1
