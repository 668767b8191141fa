"""Softmax weights as a textbook kernel computes them, on bounded arrays.

Such a kernel subtracts a maximum, exponentiates, adds up and divides; flash attention does so block by block, rescales
whenever the maximum grows, and takes its weights again from a stored log Σ e^l to differentiate. All these steps are
covered, each with the arithmetic of :func:`theorems.bounded.spacing`.

Another formula for the same weights, and for what follows from them, is allowed twice this error. That suffices for
every formula that rounds each number at most twice as often as this one does: the bound assumes that all roundings are
as large as possible and of the same sign, so it is linear in their number:

- a logit costs d + 2 ≥ 3 roundings of Σ_j |k_j p_j| ≥ |l|: room for three more, a query scaled up and down, a product
  with log2 e to exponentiate to the base 2;
- every formula has exponents, exponentials, a sum and a division, in another order or once more. An update of a running
  maximum multiplies numerator and sum by one more exponential, which ``updates`` counts; where it does not count them,
  exponentials accurate to one unit leave room for 50 updates;
- keys, scores, upstream gradient and weights enter a gradient by products and sums, in any order.

``python -m tests.theorems.bounded.measure_bounded`` prints the share of this allowance that kernels use: PyTorch's math
and flash paths, softmax(q kᵀ) v under autograd, and tiles of 16 tokens and of one, for (n, T, d) from (1, 2, 1) to (4,
64, 32) and logits from 0.01 to 1e4 and more. The largest shares are 0.03, 0.09 and 0.06 for weights in float64, float32
and bfloat16, 0.02 for outputs and 0.01 for gradients. Where float32 underflows, PyTorch's flash kernel uses 0.4,
because its exponential underflows at 1e-38.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded import Bounded
from theorems.bounded.arithmetic import FLOAT64, current, without_kernel
from theorems.bounded.array import restore_invariants, upward
from theorems.bounded.exponentials import rise


def recompute_weights(weights: Bounded, logits: Bounded) -> Bounded:
    """Widen weights so that they cover those of a backward pass, e^{l'_t − log Σ e^l} with recomputed logits l'.

    The log-sum-exp is stored by the forward pass; the logits l' are summed in another order than l. So each weight has
    the relative error l' − l, at most twice the error of a logit, and the weights need not sum to 1. The relative error
    is capped at e − 1: where logits are off by more than 1/2, weights have no correct digits anyway.
    """
    with np.errstate(invalid="ignore"):
        apart = np.where(np.isfinite(logits.error), np.expm1(np.minimum(2 * logits.error, 1.0)), np.inf)
    return weights.widen(upward(np.where(weights.value > 0, (weights.value + weights.error) * apart, 0.0)))


def softmax(logits: Bounded, updates: int = 0) -> Bounded:
    """Compute s_t = e^{l_t} / Σ e^{l_u} over the last axis, with the errors of a textbook kernel.

    The exact softmax of a kernel's logits differs by the error that l_t − log Σ e^l inherits from them. The kernel's
    own roundings are, relative to s_t, with u its unit roundoff, f the error of its exponential, a_t = max l − l_t ≤
    |log s_t| and Σ s a ≤ log T (Gibbs):

    - exponents, formed once or by telescoping differences of growing maxima: 2 u (a_t + log T);
    - exponentials in numerator and sum 2 f, the logarithm of the sum f log T, where it is taken;
    - the sum and the division: (T + 2) u; each update of the maximum f + u, in numerator and sum;
    - a stored log Σ e^l: its rounding, at most u |log Σ e^l|, and at most log Σ e^l − max l, since max l is a number
      of its own.

    Weights lie between 0 and 1 and add up to 1 whatever the logits are, in a kernel up to the sum of these roundings.
    So the error of a weight is at most the sum of the other errors, which keeps it small where the softmax saturates.

    Args:
        logits: (…, T).
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
        error_of_terms = np.where(masked, 0.0, rise(x, e + roundings, value))
    lost = np.where(masked, 0.0, (updates + 1) * now.vanishing)
    sums = shared + u * logs * 2
    error = upward(np.fmin(error_of_terms, 1 + 2 * sums) + lost)
    # The amount by which the sum of float64's own weights misses 1.
    defect = np.abs(1 - np.sum(value, axis=-1, keepdims=True)) + (tokens + 2) * FLOAT64.rounding
    total = np.sum(error, axis=-1, keepdims=True) * (1 + (tokens + 8) * 2 * FLOAT64.rounding)
    together = np.maximum(total - error, 0.0) + upward(defect + sums, tokens)
    return restore_invariants(value, np.fmin(error, upward(together)))
