"""Data and schedules of mini-batches for the statements on adaptive methods, such as Adam.

The data are features h_i and labels of two classes. All entries of a sample have the same absolute value, not zero.

References: Baek, Song, Yun, arXiv 2510.26303.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.finding import Assumption, Finding
from generators.labelled_features import LabelledFeatures
from reference_attention.errors import InvalidInput

MOST = (6, 5)
"""The largest number of samples n and dimension d."""
CYCLIC, SHUFFLED, REPLACED, FULL = "cyclic", "shuffled", "with replacement", "full"
KINDS = (CYCLIC, SHUFFLED, REPLACED, FULL)
"""Kinds of batch schedules: the same order of samples in all epochs; a new order in each epoch; batches drawn with
replacement; full batches.
"""
EPOCHS = (CYCLIC, SHUFFLED)
"""The kinds of batch schedules in which each epoch puts each sample into exactly one batch."""


@st.composite
def equal_modulus_cases(draw: DrawFn) -> LabelledFeatures:
    """Draw features h_i with entries ±α_i and classes y_i = ±1; most signs of y_i h_i are those of a common vector."""
    n, d = draw(st.integers(1, MOST[0])), draw(st.integers(1, MOST[1]))
    common = np.array(draw(st.lists(st.sampled_from((-1.0, 1.0)), min_size=d, max_size=d)))
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    sizes = np.array(draw(st.lists(st.sampled_from((1.0, 3.0, 0.5, 0.3, 7.0)), min_size=n, max_size=n)))
    against = np.zeros((n, d), dtype=bool)
    for row in against:
        flipped = draw(st.lists(st.integers(0, d - 1), unique=True, max_size=(d - 1) // 2))
        row[flipped] = True
    own_side = np.where(against, -common, common) * sizes[:, None]
    features = np.where(labels == 0, 1.0, -1.0)[:, None] * own_side
    return LabelledFeatures(features, labels, np.ones(n, dtype=np.int64), 2, seed=draw(st.integers(0, 2**32 - 1)))


def equal_moduli(case: LabelledFeatures) -> Finding:
    """Check that there are two classes, and that all entries of a feature have the same positive absolute value."""
    sizes = np.abs(case.features)
    alike = bool((sizes == sizes[:, :1]).all() and (sizes > 0).all())
    if case.classes != 2:
        return Finding(False, f"{case.classes} classes")
    return Finding(alike, "entries of each sample have one modulus" if alike else "moduli of a sample's entries differ")


EQUAL_MODULI = Assumption(
    "equal-moduli", "two classes, |h_ij| = α_i > 0 for all j", "arXiv 2510.26303, Theorem 3.3", equal_moduli
)


def batch_schedule(
    kind: str, weights: Float64[np.ndarray, "n"], size: int, steps: int, rng: np.random.Generator
) -> Float64[np.ndarray, "t n"]:
    """Return, for each step t, the share of each sample in the batch, (steps, n); the shares of a step sum to 1.

    Args:
        kind: one of :data:`KINDS`.
        weights: the share of each sample in a full batch.
        size: the number of samples in a batch; the last batch of an epoch may have fewer.
        steps: the number of batches.
        rng: the generator that draws the orders.

    Raises:
        InvalidInput: an unknown kind, or a batch without samples.
    """
    n = len(weights)
    if kind not in KINDS or not 1 <= size <= n:
        raise InvalidInput(f"kind, size: {kind!r}, {size}; give kind {' or '.join(KINDS)}, and size 1 to {n}.")
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
