"""A right kernel of tensors of 8 bits with a factor for each group of heads of an entry, in flash-attn's interface.

Tensors of other types are attended to as they are.

theorems verify --attention examples.real_faults.further.fp8:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.rows import of_module

FP8 = torch.float8_e4m3fn


class Factors:
    """The steps of one call, at least in float32."""

    def factor(self, name: str, descale: Tensor | None, heads: int) -> Tensor | float:
        """That of query, key or value, (B, H, 1, 1).

        Args:
            name: q, k or v.
            descale: (B, H').
            heads: of the queries.
        """
        if descale is None:
            return 1.0
        return descale.repeat_interleave(heads // descale.shape[1], dim=1)[..., None, None]


def with_factors(steps: type[Factors]) -> Callable[..., Any]:
    """flash-attn's interface of its third generation."""

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        return_softmax_lse: bool = False,
    ) -> Any:
        own, coarse = steps(), q.dtype == FP8
        wide = torch.float32 if coarse else torch.promote_types(q.dtype, torch.float32)
        H = q.shape[2]
        query = q.transpose(1, 2).to(wide)
        key, value = (x.transpose(1, 2).to(wide).repeat_interleave(H // x.shape[2], dim=1) for x in (k, v))
        scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
        (L, T) = query.shape[2], key.shape[2]
        logits = query @ key.mT * (own.factor("q", q_descale, H) * own.factor("k", k_descale, H) * scale)
        if causal:
            logits = logits.masked_fill(torch.arange(T) > torch.arange(L)[:, None] + T - L, -math.inf)
        top = logits.detach().amax(dim=-1, keepdim=True)
        top = torch.where(top == -math.inf, 0.0, top)
        weights = torch.exp(logits - top)
        total = weights.sum(dim=-1, keepdim=True)
        there = torch.where(total == 0, 1.0, total)
        rounded = weights.to(FP8).to(wide) if coarse else weights
        out = rounded @ value / there * own.factor("v", v_descale, H)
        out = out.transpose(1, 2).to(torch.bfloat16 if coarse else q.dtype)
        lse = torch.where(total == 0, -math.inf, top + there.log()).squeeze(-1)
        return (out, lse) if return_softmax_lse else out

    return of_module(steps, attention)


attention = with_factors(Factors)
