"""Functions that each call a certain implementation of attention in PyTorch, which chooses one by itself otherwise."""

from __future__ import annotations

import logging
import math
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def by_formula(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Call PyTorch's implementation of the formula, operation by operation."""
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )


def flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Call PyTorch's flash attention for CPUs; calls that it does not support raise an error."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scaled_dot_product_attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale)


def flash_with_lse(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False, return_lse: bool = False
) -> Any:
    """Call the operator behind PyTorch's flash attention for CPUs, which also returns the log-sum-exp."""
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = operator(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal, scale=softmax_scale)
    return (output.transpose(1, 2), lse) if return_lse else output.transpose(1, 2)


RECOMPILED = 128
"""The allowed number of compiled programs of one function: each set of options, and of axes of size 1, needs its own.

Beyond PyTorch's default limit the function would run uncompiled, so that other code would be tested.
"""


@cache
def _program_of(function: Any) -> Any:
    import torch._dynamo.config as limits

    limits.recompile_limit = limits.accumulated_recompile_limit = RECOMPILED
    limits.fail_on_recompile_limit_hit = True
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # PyTorch warns of each program beyond its own limit
    return torch.compile(function, dynamic=True)


def under_compile(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Call scaled_dot_product_attention under torch.compile, compiled for all sizes at once."""
    return _program_of(scaled_dot_product_attention)(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    return_lse: bool = False,
) -> Any:
    """Call flex_attention without torch.compile, with mask and score functions made from the given options."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    left, right = window_size

    def sees(batch: Tensor, head: Tensor, i: Tensor, t: Tensor) -> Tensor:
        visible = (t <= i) if causal else torch.ones_like(t <= i)
        visible = visible & (t >= i - left) if left >= 0 else visible
        return visible & (t <= i + right) if right >= 0 else visible

    def cap(score: Tensor, *where: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    hiding = causal or left >= 0 or right >= 0
    mask = create_block_mask(sees, None, None, q.shape[1], k.shape[1], device=q.device.type) if hiding else None
    returned: Any = flex_attention(  # type: ignore[call-overload]
        *(x.transpose(1, 2) for x in (q, k, v)),
        score_mod=cap if softcap else None,
        block_mask=mask,
        scale=softmax_scale,
        enable_gqa=q.shape[2] != k.shape[2],
        return_aux=AuxRequest(lse=True) if return_lse else None,
    )
    return (returned[0].transpose(1, 2), returned[1].lse) if return_lse else returned.transpose(1, 2)


def module(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Call nn.MultiheadAttention, with one head and identity projections, which scales by 1/√E for E columns."""
    B, H, L, E = query.shape
    query = query if scale is None else query * (scale * math.sqrt(E))
    attention = torch.nn.MultiheadAttention(E, 1, bias=False, batch_first=True, dtype=query.dtype)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.eye(E, dtype=query.dtype).repeat(3, 1))
        attention.out_proj.weight.copy_(torch.eye(E, dtype=query.dtype))
    hidden = None
    if attn_mask is not None:
        # In the mask of nn.MultiheadAttention, True hides a key.
        every = attn_mask.expand(B, H, L, key.shape[2]).flatten(0, 1)
        hidden = ~every if attn_mask.dtype == torch.bool else every
    if is_causal:
        later = torch.ones(L, key.shape[2], dtype=torch.bool).triu(1)
        boolean = hidden is None or hidden.dtype == torch.bool
        hidden = later if hidden is None else hidden | later if boolean else hidden.masked_fill(later, -torch.inf)
        is_causal = attn_mask is None  # is_causal tells nn.MultiheadAttention that the mask is nothing but causal
    attention.eval()
    inputs = (x.flatten(0, 1) for x in (query, key, value))
    output, _ = attention(*inputs, attn_mask=hidden, need_weights=False, is_causal=is_causal)
    return output.unflatten(0, (B, H))
