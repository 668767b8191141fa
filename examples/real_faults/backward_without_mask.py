"""Dao-AILab/flash-attention #2424: flash-attention 4's ``flash_attn_func`` does not hand its mask to the backward pass.

The output is right; the gradients are those of rows that see every key, without a warning.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_sdpa


class Steps(Tiled):
    """A backward pass that has not heard of the mask."""

    def backward(self, *saved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.right(mask=None).backward(*saved)


attention = with_sdpa(Steps)
