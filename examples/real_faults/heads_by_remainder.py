"""XunhaoLai/native-sparse-attention-triton #27: dK and dV of grouped heads go to the wrong head of the keys.

The backward pass splits the number of a query's head by the wrong count; here by % where // is meant. Right with as
many heads of keys as of queries, or with one; output and dQ are right.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_sdpa


class Steps(Tiled):
    """Head h of the queries adds to the gradient of head h % H'."""

    def for_each_key_head(self, gradient: Tensor, like: Tensor) -> Tensor:
        heads = torch.arange(gradient.shape[-3], device=like.device) % like.shape[-3]
        return torch.zeros_like(like).index_add(-3, heads, gradient)


attention = with_sdpa(Steps)
