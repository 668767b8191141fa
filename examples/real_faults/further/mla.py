"""A right kernel whose values are the first columns of its keys, in FlashMLA's interface, with its backward pass.

theorems verify --attention examples.real_faults.further.mla:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows, attend, of_module


class Latent:
    """The steps of one entry of a batch, (T, H', E)."""

    def keys(self, cache: Tensor, table: Tensor, length: int) -> Tensor:
        """Those of an entry, from the pages (N, P, H', E) of its table."""
        return cache[table].flatten(0, 1)[:length]

    def of_logits(self, keys: Tensor, width: int) -> Tensor:
        """What queries are multiplied with, where so many columns are values."""
        return keys

    def values(self, keys: Tensor, width: int) -> Tensor:
        """The first columns of the keys."""
        return keys[..., :width]


def with_latent(steps: type[Latent]) -> Callable[..., Any]:
    """``flash_mla_with_kvcache``: (B, L, H, E) and pages (N, P, H', E) → (B, L, H, M) and log-sum-exp (B, H, L)."""

    def attention(
        q: Tensor,
        k_cache: Tensor,
        block_table: Tensor,
        cache_seqlens: Tensor,
        head_dim_v: int,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        latent, rows = steps(), Rows(1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale, causal)
        found = []
        for b, length in enumerate(cache_seqlens.tolist()):
            keys = latent.keys(k_cache, block_table[b].long(), length)
            values = latent.values(keys, head_dim_v)
            found.append(attend(rows, *(x.transpose(0, 1) for x in (q[b], latent.of_logits(keys, head_dim_v), values))))
        out, lse = (torch.stack(each) for each in zip(*found, strict=True))
        return out.transpose(1, 2), lse

    return of_module(steps, attention)


attention = with_latent(Latent)
