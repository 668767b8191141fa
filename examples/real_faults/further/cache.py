"""A right kernel that decodes with a cache of keys, in splits, in one piece or in pages, in flash-attn's interface.

theorems verify --attention examples.real_faults.further.cache:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.merge import Merge
from examples.real_faults.further.rows import Rows, of_module

BLOCK = 16
"""Keys that are not split."""


class Cache:
    """The steps of one entry of a batch, at least in float32."""

    rows: type[Rows] = Rows

    def keys(self, cache: Tensor, table: Tensor | None, length: int) -> Tensor:
        """The keys or values of an entry, (T, H, E).

        Args:
            cache: those of the entry, (T, H, E), or all pages (N, P, H, E).
            table: the pages of the entry, in order.
            length: the keys that there are.
        """
        return (cache if table is None else cache[table].flatten(0, 1))[:length]

    def splits(self, length: int, capacity: int, number: int) -> Iterator[slice]:
        """The keys of each split, whole blocks of them; the last ones may have none.

        Args:
            length: the keys that there are.
            capacity: those that the cache could hold.
            number: of splits.
        """
        size = -(-length // BLOCK // number) * BLOCK if number > 1 else length
        size = max(size, -(-length // number))
        for start in range(number):
            yield slice(start * size, min((start + 1) * size, length))

    def one(self, scale: float, causal: bool, q: Tensor, k: Tensor, v: Tensor, capacity: int, number: int) -> Any:
        """Output and log-sum-exp of an entry, (H, L, E) in."""
        whole = self.rows(scale, causal).logits(q, k, None)
        parts = []
        for keys in self.splits(k.shape[-2], capacity, number):
            logits = whole[..., keys]
            top, total = self.rows().total_of_keys(logits)
            weights = torch.exp(logits - top[..., None]) / torch.where(total == 0, 1.0, total)[..., None]
            parts.append((weights @ v[..., keys, :], torch.where(total == 0, -math.inf, top + total.log())))
        out, lse = (torch.stack(each) for each in zip(*parts, strict=True))
        return Merge().whole(out, lse)

    def batch(self, found: list[Any], number: int) -> list[Any]:
        """What was found of all entries, in their order."""
        return found


def with_kvcache(steps: type[Cache]) -> Callable[..., Any]:
    """flash-attn's ``flash_attn_with_kvcache``: (B, L, H, E) and (B, T, H', E), or pages (N, P, H', E) and a table."""

    def attention(
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        cache_seqlens: Tensor | None = None,
        block_table: Tensor | None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
        num_splits: int = 0,
        return_softmax_lse: bool = False,
    ) -> Any:
        cache, found = steps(), []
        scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
        capacity = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
        wide = torch.promote_types(q.dtype, torch.float32)
        for b in range(len(q)):
            length = capacity if cache_seqlens is None else int(cache_seqlens[b])
            table = None if block_table is None else block_table[b].long()
            k, v = (
                cache.keys(x if block_table is not None else x[b], table, length)
                .repeat_interleave(q.shape[2] // x.shape[-2], dim=1)
                .transpose(0, 1)
                .to(wide)
                for x in (k_cache, v_cache)
            )
            found.append(cache.one(scale, causal, q[b].transpose(0, 1).to(wide), k, v, capacity, max(1, num_splits)))
        out, lse = (torch.stack(each) for each in zip(*cache.batch(found, max(1, num_splits)), strict=True))
        out = out.transpose(1, 2).to(q.dtype)
        return (out, lse) if return_softmax_lse else out

    return of_module(steps, attention)


attention = with_kvcache(Cache)
