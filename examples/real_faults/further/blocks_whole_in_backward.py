"""Dao-AILab/flash-attention #2623: the backward pass takes other blocks than the forward pass for whole ones.

There gradients of block-sparse attention were wrong by factors while its output was exact. Here the backward pass shows
all keys of a block of 16 of which a row sees one. Right for whole blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.flex import Flex, with_flex


class Steps(Flex):
    """Output of what is seen, gradients of whole blocks."""

    def rows(self, logits: Tensor, seen: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = super().rows(logits, seen, values)
        T = logits.shape[-1]
        blocks = torch.nn.functional.pad(seen.expand(logits.shape), (0, -T % 16)).unflatten(-1, (-1, 16))
        whole = blocks.any(dim=-1).repeat_interleave(16, dim=-1)[..., :T]
        other, _ = super().rows(logits, whole, values)
        return out.detach() + (other - other.detach()), lse


attention = with_flex(Steps)
