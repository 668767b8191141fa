"""Norms ‖x‖ of bounded arrays, in ‖·‖_q and in norms of matrices, and upper bounds of ‖x‖."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference_attention.norms import Blocks, Norm, Schatten
from theorems.bounded import Bounded, exact, value_of
from theorems.rounding.attention_at import Numbers
from theorems.rounding.singular_values import nuclear_norm, singular_values

NEGLIGIBLE = 2.0**-900
"""The share of the largest entry below which an entry adds nothing to the value of a norm, only to its error bound."""


def norm_of(x: Any, norm: Norm) -> Numbers:
    """Return ‖x‖ over the last axis.

    The value of the result is the norm of the values of x; its error bound includes the norm of the errors of x.
    """
    if isinstance(norm, Schatten):
        matrices = norm.matrices(x)
        return nuclear_norm(matrices) if norm.power == 1 else singular_values(matrices)[..., 0]
    if isinstance(norm, Blocks):
        members: Any = norm.members > 0
        blocks = [np.linalg.norm(x[..., center], axis=-1) for center in members.T]
        lengths: Any = np.stack(blocks, axis=-1)
        return np.sum(lengths, axis=-1) if norm.power == 1 else np.max(lengths, axis=-1)
    if isinstance(x, Bounded) and np.any(x.error > 0):
        center, off = norm_of(exact(x.value), norm), norm_of(exact(x.error), norm)
        return center.widen(off.value + off.error)
    size: Any = np.abs(x)
    if norm == 1:
        return np.sum(size, axis=-1)
    if math.isinf(norm):
        return np.max(size, axis=-1)
    if norm == 2:
        return np.linalg.norm(x, axis=-1)
    # Divide by the largest entry, a float taken as exact, so that nothing overflows.
    unit = np.max(value_of(size), axis=-1)
    share: Any = size / np.where(unit > 0, unit, 1.0)[..., None]
    # The logarithm of a subnormal number has no error bound here, but the number's term in the sum has an upper bound.
    negligible = np.asarray((value_of(size) > 0) & (value_of(size) < NEGLIGIBLE * unit[..., None]))
    scaled = np.log(np.where(negligible, 1.0, share)) * norm
    terms: Any = np.where(negligible, 0.0, np.exp(scaled))
    total = np.maximum(np.sum(terms, axis=-1), 1.0)
    if negligible.any():
        total = total.widen(NEGLIGIBLE * np.sum(negligible, axis=-1))
    return np.exp(np.log(total) / norm) * unit


def norm_bound(entries: Any, norm: Norm) -> Numbers:
    """Return a bound of ‖x‖ over all x with |x_j| ≤ entries_j.

    For the spectral norm the bound uses ‖x‖_op ≤ ‖x‖_F, for the nuclear norm ‖x‖_⋆ ≤ √rank ‖x‖_F.
    """
    if not isinstance(norm, Schatten):
        return norm_of(exact(entries), norm)
    rank = min(norm.shape) if norm.power == 1 else 1
    return np.linalg.norm(exact(entries), axis=-1) * np.sqrt(exact(float(rank)))
