"""Softmax weights as a textbook kernel computes them, on bounded arrays.

A textbook kernel, which follows the usual formula, subtracts the largest logit, exponentiates, adds up and divides.
Flash attention does this block by block, rescales whenever the maximum grows, and in its backward pass recomputes the
weights from a stored log Σ e^l. The bounds cover all these steps, computed in the kernel's number format
(:func:`theorems.bounded.spacing`).

An implementation may use another formula for the weights, outputs and gradients, so it is allowed twice this error.
This suffices for every formula that rounds each number at most twice as often: the bound assumes that all roundings are
as large as possible and of the same sign, so it is linear in their number. In detail:

- the error of a logit l counts d + 2 ≥ 3 roundings of numbers up to Σ_j |k_j p_j| ≥ |l|, so twice the error covers
  three more: a query scaled up and down, and a product with log2 e for exponentials to the base 2;
- every formula has exponents, exponentials, a sum and a division, perhaps in another order or twice. Each update of a
  running maximum multiplies numerator and sum by another exponential. The argument ``updates`` counts these updates;
  exponentials accurate to one unit in the last place leave room for 50 uncounted ones;
- gradients consist of products and sums of keys, scores, weights and the upstream gradient, in any order.

``python -m tests.theorems.bounded.measure_bounded`` prints how large the errors of kernels are, as a share of the
allowed error: PyTorch's math and flash paths, softmax(q kᵀ) v under autograd, and tiled kernels with 16 tokens or one
per tile, for (n, T, d) from (1, 2, 1) to (4, 64, 32) and logits from 0.01 to 1e4 and more. For weights, the largest
shares are 0.03 in float64, 0.09 in float32 and 0.06 in bfloat16; they are 0.02 for outputs and 0.01 for gradients.
Where float32 underflows, the share of PyTorch's flash kernel is 0.4, because its exponential underflows at 1e-38.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded import Bounded
from theorems.bounded.arithmetic import FLOAT64, current, without_kernel
from theorems.bounded.array import restore_invariants, upward
from theorems.bounded.exponentials import rise


def recompute_weights(weights: Bounded, logits: Bounded) -> Bounded:
    """Widen error bounds of softmax weights to cover the weights e^{l'_t − log Σ e^l} of a backward pass.

    The forward pass, with logits l, stores log Σ e^l; the backward pass recomputes the logits as l', perhaps summed in
    another order. So each weight has the relative error l' − l, at most twice the error of a logit, and the weights
    need not sum to 1. The relative error is capped at e − 1: where errors of logits exceed 1/2, weights have no correct
    digits anyway.
    """
    with np.errstate(invalid="ignore"):
        apart = np.where(np.isfinite(logits.error), np.expm1(np.minimum(2 * logits.error, 1.0)), np.inf)
    return weights.widen(upward(np.where(weights.value > 0, (weights.value + weights.error) * apart, 0.0)))


def softmax(logits: Bounded, updates: int = 0) -> Bounded:
    """Return s_t = e^{l_t} / Σ e^{l_u} over the last axis, with the error of a textbook kernel.

    The errors of logits change the exact softmax by the error of l_t − log Σ e^l. Let u be the kernel's unit roundoff,
    f the error of its exponential, and a_t = max l − l_t ≤ |log s_t|, for which Σ_t s_t a_t ≤ log T (Gibbs). The
    kernel's own roundings change s_t by, relatively:

    - for the exponents l − max l, computed at once or as sums of differences between growing maxima: 2 u (a_t + log T);
    - for the exponentials in numerator and sum: 2 f; for the logarithm of the sum, if the kernel computes it: f log T;
    - for the sum and the division: (T + 2) u; for each update of the maximum: f + u, both in numerator and sum;
    - for log Σ e^l, if it is stored for the backward pass: its rounding, at most u |log Σ e^l|, and at most log Σ e^l −
      max l, because max l is itself a number of the format.

    Whatever the logits are, weights lie between 0 and 1 and add up to 1; a kernel's weights do so up to the sum of
    these roundings. So the error of a weight is at most the sum of the other errors, which keeps it small where the
    softmax saturates.

    Args:
        logits: the logits l, (…, T).
        updates: how often the maximum may grow in a kernel that works block by block: the number of blocks − 1.
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
    # The distance from 1 of the sum of the weights, as float64 computed them.
    defect = np.abs(1 - np.sum(value, axis=-1, keepdims=True)) + (tokens + 2) * FLOAT64.rounding
    total = np.sum(error, axis=-1, keepdims=True) * (1 + (tokens + 8) * 2 * FLOAT64.rounding)
    together = np.maximum(total - error, 0.0) + upward(defect + sums, tokens)
    return restore_invariants(value, np.fmin(error, upward(together)))
