"""NVIDIA/apex PR #816: the backward pass multiplies what was kept by p, in place of 1/(1 − p).

Right without dropout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.gpt_oss import Eager, with_eager


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, kept: Tensor, share: float) -> Tensor:
        ctx.kept, ctx.share = kept, share
        return weights * kept / (1 - share)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return upstream * ctx.kept * ctx.share, None, None


class Steps(Eager):
    """Right forward."""

    def drop(self, weights: Tensor, share: float, module: Any) -> Tensor:
        kept = torch.rand_like(weights) >= (share if module.training else 0.0)
        return _Kept.apply(weights, kept, share) if module.training else weights  # type: ignore[no-any-return]


attention = with_eager(Steps)
