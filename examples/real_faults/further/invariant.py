"""A right kernel that gives an entry of a batch the same bits as alone, in flash-attn's interface.

theorems verify --attention examples.real_faults.further.invariant:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.merge import Merge
from examples.real_faults.further.rows import of_module, or_one

SPLIT = 16
"""Keys to a split, whatever the batch."""


class Invariant:
    """The steps of one entry of a batch, (H, L, E), at least in float32."""

    def split(self, entries: int, keys: int) -> int:
        """Keys to a split."""
        return SPLIT

    def logits(self, q: Tensor, k: Tensor, entries: int) -> Tensor:
        """q·k of each query and key."""
        return q @ k.mT

    def one(self, scale: float, causal: bool, q: Tensor, k: Tensor, v: Tensor, entries: int) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp of an entry, one of so many."""
        logits = self.logits(q, k, entries) * scale
        L, T = logits.shape[-2:]
        if causal:
            logits = logits.masked_fill(torch.arange(T) > torch.arange(L)[:, None] + T - L, -math.inf)
        found, split = [], self.split(entries, T)
        for start in range(0, T, split):
            part = logits[..., start : start + split]
            top = part.detach().amax(dim=-1)
            top = torch.where(top == -math.inf, 0.0, top)
            weights = torch.exp(part - top[..., None])
            total = weights.sum(dim=-1)
            out = weights @ v[:, start : start + split] / or_one(total)[..., None]
            found.append((out, torch.where(total == 0, -math.inf, top + or_one(total).log())))
        out, lse = (torch.stack(each) for each in zip(*found, strict=True))
        return Merge().whole(out, lse)


def with_batch(steps: type[Invariant]) -> Callable[..., Any]:
    """flash-attn's interface with the flag of its fork in SGLang."""

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        return_softmax_lse: bool = False,
        batch_invariant: bool = False,
    ) -> Any:
        own, wide, group = steps(), torch.promote_types(q.dtype, torch.float32), q.shape[2] // k.shape[2]
        scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
        query = q.transpose(1, 2).to(wide).contiguous()
        key, value = (x.transpose(1, 2).repeat_interleave(group, dim=1).to(wide).contiguous() for x in (k, v))
        # What lies in memory where a tensor of one entry would.
        entries = ([x.clone() for x in each] for each in zip(query, key, value, strict=True))
        found = [own.one(scale, causal, *each, len(q)) for each in entries]
        out, lse = (torch.stack(each) for each in zip(*found, strict=True))
        out = out.transpose(1, 2).to(q.dtype)
        return (out, lse) if return_softmax_lse else out

    return of_module(steps, attention)


attention = with_batch(Invariant)
