"""Softmax weights as a textbook kernel computes them, on bounded arrays.

Such a kernel subtracts a maximum, exponentiates, adds up and divides; flash attention does so block by block, rescales
whenever the maximum grows, and takes its weights again from a stored log Σ e^l to differentiate. All of it is covered,
each with the arithmetic of :func:`theorems.rounding.bounded.spacing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.rounding.bounded import Bounded
from theorems.rounding.bounded.arithmetic import FLOAT64, current, without_kernel
from theorems.rounding.bounded.array import made, upward
from theorems.rounding.bounded.exponentials import rise


def softmax(logits: Bounded, updates: int = 0) -> Bounded:
    """s_t = e^{l_t} / Σ e^{l_u} over the last axis.

    The exact softmax of a kernel's logits differs by what l_t − log Σ e^l inherits. Its own roundings, u its unit
    roundoff, f its exponential's, a_t = max l − l_t ≤ |log s_t| and Σ s a ≤ log T (Gibbs), relative to s_t:

    - exponents, formed once or by telescoping differences of growing maxima: 2 u (a_t + log T);
    - exponentials in numerator and sum 2 f, the logarithm of the sum f log T, where it is taken;
    - the sum and the division: (T + 2) u; each update of the maximum f + u, in numerator and sum;
    - a stored log Σ e^l: its rounding, at most u |log Σ e^l|, and at most log Σ e^l − max l, since max l is a number
      of its own.

    Weights lie between 0 and 1 and add up to 1 whatever the logits, a kernel's up to the sum of these: so none is
    further off than the others together, which keeps the error small where the softmax saturates.

    Args:
        updates: how often a kernel that goes block by block may find a larger maximum; the number of blocks − 1.
    """
    now, tokens = current(), logits.shape[-1]
    u, f = now.theirs, now.function - FLOAT64.function
    with without_kernel():
        normaliser: Any = np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        log_weights = logits - normaliser
    masked = np.isneginf(log_weights.value)
    x, e = np.where(masked, 0.0, log_weights.value), log_weights.error
    value = np.where(masked, 0.0, np.exp(x))
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.abs(x) + e
        largest = np.min(np.where(masked, np.inf, reach), axis=-1, keepdims=True)
        stored = np.fmin(u * (np.abs(normaliser.value) + normaliser.error), 2 * largest)
        logs = float(np.log(tokens))
        shared = (tokens + 2) * u + f * (1 + logs) + updates * (f + u) + stored
        roundings = FLOAT64.function + 2 * u * (reach + logs) + f + shared + updates * (f + u)
        own = np.where(masked, 0.0, rise(x, e + roundings, value))
    lost = np.where(masked, 0.0, (updates + 1) * now.vanishing)
    sums = shared + u * logs * 2
    error = upward(np.fmin(own, 1 + 2 * sums) + lost)
    # What float64's own weights lack of 1, or exceed it by.
    defect = np.abs(1 - np.sum(value, axis=-1, keepdims=True)) + (tokens + 2) * FLOAT64.rounding
    total = np.sum(error, axis=-1, keepdims=True) * (1 + (tokens + 8) * 2 * FLOAT64.rounding)
    together = np.maximum(total - error, 0.0) + upward(defect + sums, tokens)
    return made(value, np.fmin(error, upward(together)))
