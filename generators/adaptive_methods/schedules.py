"""Batch schedules: which share of each step's batch every sample has."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.errors import InvalidInput

CYCLIC, SHUFFLED, REPLACED, FULL = "cyclic", "shuffled", "with replacement", "full"
KINDS = (CYCLIC, SHUFFLED, REPLACED, FULL)
"""Every epoch in one order; in an order of its own; each batch drawn anew; every batch all samples."""
EPOCHS = (CYCLIC, SHUFFLED)
"""The kinds whose epochs are partitions of the samples into batches."""


def batch_schedule(
    kind: str, weights: Float64[np.ndarray, "n"], size: int, steps: int, rng: np.random.Generator
) -> Float64[np.ndarray, "t n"]:
    """Return c_i(t), the share of sample i in the batch of step t, of sum 1 in every step.

    Args:
        kind: one of :data:`KINDS`.
        weights: π_i, the shares of a full batch.
        size: samples in a batch; the last batch of an epoch may have fewer.
        steps: number of batches.
        rng: draws the orders.

    Raises:
        InvalidInput: an unknown kind, or a batch without samples.
    """
    n = len(weights)
    if kind not in KINDS or not 1 <= size <= n:
        raise InvalidInput(f"kind, size: {kind!r}, {size}; give one of {', '.join(KINDS)} and 1 to {n} samples.")
    if kind == FULL:
        return np.tile(weights, (steps, 1))
    shares, order = np.zeros((steps, n)), rng.permutation(n)
    for t in range(steps):
        first = t % epoch_length(n, size) * size
        if first == 0 and kind == SHUFFLED:
            order = rng.permutation(n)
        batch = rng.integers(n, size=size) if kind == REPLACED else order[first : first + size]
        np.add.at(shares[t], batch, 1 / len(batch))
    return shares


def epoch_length(n: int, size: int) -> int:
    """Return the number of batches of an epoch."""
    return -(-n // size)
