"""Sizes of calls, with lengths at and around the block sizes of kernels, and kinds of numbers in a call's tensors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall

SMALL = (1, 2, 3, 4, 5)
LONG = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Lengths at and around the block sizes of kernels."""


class Numbers(StrEnum):
    """The kinds of numbers in the tensors of a call."""

    INTEGERS = "integers"
    """Integers from −3 to 3, which lead to equal logits."""
    NORMAL = "normal"
    """Standard normal, as most test suites draw."""
    SATURATED = "saturated"
    """Logits in the hundreds: weights of 0 and 1, exponentials that underflow."""
    FAR = "far"
    """Logits around −10⁵ that are close to each other: a correct result depends only on their differences."""
    GROWING = "growing"
    """Increasing logits, so that a running maximum grows at every step."""
    TILES = "tiles"
    """Values of ±4 that change their sign only between blocks of keys, of 64, 128 or 256 by column: a lost block moves
    outputs far."""


@dataclass(frozen=True)
class Sizes:
    """The sizes B, H, G, L, T, E, M of a call, as :class:`.AttentionCall` defines them."""

    B: int
    H: int
    G: int
    L: int
    T: int
    E: int
    M: int

    @cached_property
    def logits(self) -> tuple[int, int, int, int]:
        """The shape of the logits, (B, H, L, T)."""
        return self.B, self.H, self.L, self.T


def tensors(sizes: Sizes, numbers: Numbers, seed: int) -> AttentionCall:
    """Draw query, key, value and upstream gradient of the given sizes and kind of numbers from a seed."""
    rng = np.random.default_rng(seed)
    shapes = (
        (sizes.B, sizes.H, sizes.L, sizes.E),
        (sizes.B, sizes.G, sizes.T, sizes.E),
        (sizes.B, sizes.G, sizes.T, sizes.M),
        (sizes.B, sizes.H, sizes.L, sizes.M),
    )
    if numbers is Numbers.INTEGERS:
        query, key, value, upstream = (rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes)
    else:
        query, key, value, upstream = (rng.standard_normal(shape) for shape in shapes)
    if numbers is Numbers.SATURATED:
        query = query * 64.0
    elif numbers is Numbers.FAR:
        query[..., 0], key[..., 0] = 512.0, -256.0
    elif numbers is Numbers.GROWING:
        query[..., 0], key[..., 0] = 16.0, np.arange(sizes.T) / 4
    elif numbers is Numbers.TILES:
        blocks = np.arange(sizes.T)[:, None] // (64 << np.arange(sizes.M) % 3)
        signs = rng.choice((-4.0, 4.0), (sizes.B, sizes.G, int(blocks.max()) + 1, sizes.M))
        value = np.take_along_axis(signs, np.broadcast_to(blocks, value.shape), axis=2)
    return AttentionCall(query, key, value, upstream, seed=seed)
