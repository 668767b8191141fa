"""The attention of MLX on a CPU, with MLX's vector-Jacobian product (vjp) as the backward pass."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    sinks: Tensor | None = None,
) -> Any:
    """Call mlx.core.fast.scaled_dot_product_attention.

    MLX's function has no default scale, and the numbers of heads decide which heads share keys, without a flag.
    """
    if is_causal and attn_mask is not None:  # MLX has one parameter for masks and causality
        L, T = query.shape[2], key.shape[2]
        sees = torch.ones(L, T, dtype=torch.bool).tril(T - L)
        boolean = attn_mask.dtype == torch.bool
        attn_mask, is_causal = attn_mask & sees if boolean else attn_mask.masked_fill(~sees, -torch.inf), False
    mask = "causal" if is_causal else None if attn_mask is None else _array(attn_mask)
    return _Called.apply(query, key, value, sinks, mask, query.shape[-1] ** -0.5 if scale is None else scale)


class _Called(torch.autograd.Function):
    """A call of MLX's attention as a function of torch's autograd."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, mask: Any, scale: float
    ) -> Tensor:
        ctx.given = [_array(x) for x in (query, key, value, sinks) if x is not None]
        ctx.mask, ctx.scale = mask, scale
        return _tensor(_attend(*ctx.given, mask=mask, scale=scale))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        _, gradients = mx.vjp(
            lambda *arrays: [_attend(*arrays, mask=ctx.mask, scale=ctx.scale)], ctx.given, [_array(upstream)]
        )
        dq, dk, dv, *dsinks = map(_tensor, gradients)
        return dq, dk, dv, dsinks[0] if dsinks else None, None, None


def _attend(query: Any, key: Any, value: Any, sinks: Any = None, *, mask: Any, scale: float) -> Any:
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask, sinks=sinks)


def _array(x: Tensor) -> Any:
    if x.dtype == torch.float64:
        raise TypeError("MLX converts float64 to float32; give float32 tensors")
    if x.dtype == torch.bfloat16:
        return mx.array(x.detach().float().numpy()).astype(mx.bfloat16)
    return mx.array(x.detach().numpy())


def _tensor(x: Any) -> Tensor:
    if x.dtype == mx.bfloat16:
        return torch.tensor(np.array(x.astype(mx.float32))).bfloat16()
    return torch.tensor(np.array(x))
