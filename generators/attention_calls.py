"""Sizes and numbers of calls of an attention kernel: lengths at and around those of blocks, logits near and far."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from generators.attention_call import AttentionCall

SMALL = (1, 2, 3, 4, 5)
LONG = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Lengths at and around those of the blocks that kernels work in."""


class Numbers(StrEnum):
    """What entries look like."""

    INTEGERS = "integers"
    """From −3 to 3: ties."""
    NORMAL = "normal"
    """Standard normal: what everybody tests."""
    SATURATED = "saturated"
    """Logits in the hundreds: weights of 0 and 1, exponentials that underflow."""
    FAR = "far"
    """Logits around −10⁵, close to each other: only their differences count, not the number zero."""
    GROWING = "growing"
    """The largest logit is the last: a running maximum grows all the way."""


@dataclass(frozen=True)
class Sizes:
    """B, H, G, L, T, E, M."""

    B: int
    H: int
    G: int
    L: int
    T: int
    E: int
    M: int

    @cached_property
    def logits(self) -> tuple[int, int, int, int]:
        """The shape of the logits."""
        return self.B, self.H, self.L, self.T


def tensors(of: Sizes, numbers: Numbers, seed: int) -> AttentionCall:
    """Query, key, value and upstream gradient of those sizes, from a seed."""
    rng = np.random.default_rng(seed)
    shapes = ((of.B, of.H, of.L, of.E), (of.B, of.G, of.T, of.E), (of.B, of.G, of.T, of.M), (of.B, of.H, of.L, of.M))
    if numbers is Numbers.INTEGERS:
        query, key, value, upstream = (rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes)
    else:
        query, key, value, upstream = (rng.standard_normal(shape) for shape in shapes)
    if numbers is Numbers.SATURATED:
        query = query * 64.0
    elif numbers is Numbers.FAR:
        query[..., 0], key[..., 0] = 512.0, -256.0
    elif numbers is Numbers.GROWING:
        query[..., 0], key[..., 0] = 16.0, np.arange(of.T) / 4
    return AttentionCall(query, key, value, upstream, seed=seed)
