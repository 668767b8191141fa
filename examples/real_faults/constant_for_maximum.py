"""HabanaAI/vllm-fork #275: the softmax of a block subtracts a constant 10 instead of the maximum.

Logits of some models reach 2000, their exponential overflows, and the model writes "!!!!". Right while nothing over- or
underflows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_sdpa


class Steps(Tiled):
    """A softmax without its maximum."""

    by_autograd = True

    def maximum(self, top: Tensor, logits: Tensor) -> Tensor:
        return torch.full_like(top, 10.0)


attention = with_sdpa(Steps)
