"""The attention of tinygrad, with tinygrad's own gradient; on a CPU tinygrad needs clang, or LLVM 18 or newer."""

from __future__ import annotations

import math
from typing import Any

import torch
from tinygrad import Tensor as TinyTensor


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Call tinygrad's attention, which divides logits by √E, on queries scaled so that the factor is ``scale``."""
    query = query if scale is None else query * (scale * math.sqrt(query.shape[-1]))
    mask = None if attn_mask is None else _array(attn_mask)
    return _Called.apply(query, key, value, mask, is_causal, enable_gqa)


class _Called(torch.autograd.Function):
    """A call of tinygrad's attention as a function of torch's autograd."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, causal: bool, grouped: bool
    ) -> torch.Tensor:
        q, k, v = ctx.given = [_array(x) for x in (query, key, value)]
        ctx.found = q.scaled_dot_product_attention(k, v, mask, is_causal=causal, enable_gqa=grouped)
        return _tensor(ctx.found, query)

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = (ctx.found * _array(upstream)).sum().gradient(*ctx.given)
        return *(_tensor(x, upstream) for x in gradients), None, None, None


def _array(x: torch.Tensor) -> Any:
    if x.dtype == torch.bfloat16:
        raise TypeError("NumPy, through which tinygrad gets its tensors, has no bfloat16; give float32")
    return TinyTensor(x.detach().contiguous().numpy())


def _tensor(x: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.numpy()).to(like.dtype)
