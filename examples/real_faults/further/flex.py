"""A right kernel that takes functions of scores and of places, in the interface of PyTorch's ``flex_attention``.

theorems verify --attention examples.real_faults.further.flex:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.rows import of_module, or_one

Mod = Callable[..., Tensor]


class Flex:
    """The steps of one call, at least in float32; the backward pass is autograd's."""

    def heads(self, heads: Tensor, group: int) -> Tensor:
        """The heads that a function of scores is given for those of queries, with so many to a group."""
        return heads

    def modified(self, mod: Mod, score: Tensor, *places: Tensor) -> Tensor:
        """What a function makes of the scores, (B, H, L, T)."""
        return mod(score, *places).expand(score.shape)

    def seen(self, mod: Mod | None, *places: Tensor) -> Tensor:
        """Which keys are seen, (B, H, L, T) or what broadcasts to it."""
        there = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        return there if mod is None else mod(*places)

    def padded(self, keys: Tensor, values: Tensor, mod: Mod | None) -> tuple[Tensor, Tensor]:
        """Keys and values as they are attended to."""
        return keys, values

    def rows(self, logits: Tensor, seen: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp; 0 and −∞ where nothing is seen."""
        logits = logits.masked_fill(~seen, -math.inf)
        top = logits.detach().amax(dim=-1, keepdim=True)
        top = torch.where(top == -math.inf, 0.0, top)
        weights = torch.exp(logits - top)
        total = weights.sum(dim=-1, keepdim=True)
        lse = torch.where(total == 0, -math.inf, top + torch.log(or_one(total)))
        return weights / or_one(total) @ values, lse.squeeze(-1)


def with_flex(steps: type[Flex]) -> Callable[..., Any]:
    """(B, H, L, E), (B, H', T, E), (B, H', T, M) → (B, H, L, M), log-sum-exp (B, H, L)."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_mod: Mod | None = None,
        block_mask: Any = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
    ) -> Any:
        flex, wide = steps(), torch.promote_types(query.dtype, torch.float32)
        (B, H, L, E), T, group = query.shape, key.shape[2], query.shape[1] // key.shape[1]
        mask = None if block_mask is None else block_mask.mask_mod
        key, value = flex.padded(*(x.repeat_interleave(group, dim=1).to(wide) for x in (key, value)), mask)
        # No function is asked for a key behind the last one.
        keys = torch.arange(key.shape[2]).clamp(max=T - 1)
        places = torch.meshgrid(torch.arange(B), torch.arange(H), torch.arange(L), keys, indexing="ij")
        logits = query.to(wide) @ key.mT * (1 / math.sqrt(E) if scale is None else scale)
        if score_mod is not None:
            b, h, *others = places
            logits = flex.modified(score_mod, logits, b, flex.heads(h, group), *others)
        out, lse = flex.rows(logits, flex.seen(mask, *places), value)
        return (out.to(query.dtype), lse) if return_lse else out.to(query.dtype)

    return of_module(steps, attention)


attention = with_flex(Flex)
