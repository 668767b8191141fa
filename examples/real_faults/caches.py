"""Faults of decoding with a cache of keys: splits and pages.

A kernel may cut the keys into splits, whose results are merged, and a cache may be cut into pages that lie in memory in
any order. Axes: B batch entries, H query heads, H' key heads, L queries, T keys, E columns of queries and keys, M
columns of values, N pages of P keys. Each function that is decorated with ``wrong_step`` replaces one correct step.

theorems verify --attention examples.real_faults.caches:last_page_whole
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import Kernel, at_least_float32, interface, or_root, wrong_step
from examples.real_faults.log_sum_exp import Merge
from examples.real_faults.rows import Rows, softmax

BLOCK = 16
"""The number of keys in a block, which is never divided between splits."""


class Cache:
    """The correct steps of a kernel with a cache; all but ``batch`` compute one batch entry, in float32 or wider."""

    def keys(self, cache: Tensor, table: Tensor | None, length: int) -> Tensor:
        """Return the keys or the values of a batch entry, in order, (T, H', E).

        Args:
            cache: the cache of the entry, (T, H', E), or all pages (N, P, H', E).
            table: the indices of the entry's pages, in order; None if ``cache`` is in one piece.
            length: the number T of the entry's keys.
        """
        return (cache if table is None else cache[table].flatten(0, 1))[:length]

    def splits(self, length: int, number: int) -> Iterator[slice]:
        """Yield the keys of each of ``number`` splits, in whole blocks; the last splits may be empty."""
        size = -(-length // BLOCK // number) * BLOCK if number > 1 else length
        size = max(size, -(-length // number))
        for start in range(number):
            yield slice(start * size, min((start + 1) * size, length))

    def attend_entry(self, rows: Rows, q: Tensor, k: Tensor, v: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Compute output and log-sum-exp of a batch entry, with queries (H, L, E), from ``number`` splits of keys."""
        whole = rows.logits(q, k, None)
        parts = []
        for keys in self.splits(k.shape[-2], number):
            weights, lse = softmax(whole[..., keys])
            parts.append((weights @ v[..., keys, :], lse))
        return Merge().whole(*(torch.stack(each) for each in zip(*parts, strict=True)))

    def batch(self, results: list[Any], number: int) -> list[Any]:
        """Return the results of all batch entries, in order, after ``number`` splits of each were merged."""
        return results


@interface
def with_kvcache(steps: type[Cache]) -> Kernel:
    """Make a kernel with the interface of flash-attn's ``flash_attn_with_kvcache`` from a class of steps.

    The kernel takes queries (B, L, H, E), and a cache (B, T, H', E) or pages (N, P, H', E) and a table of pages.
    """

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
        cache, number, results = steps(), max(1, num_splits), []
        rows, group, wide = (
            Rows(or_root(softmax_scale, q), causal),
            q.shape[2] // k_cache.shape[-2],
            at_least_float32(q),
        )
        capacity = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
        for b in range(len(q)):
            length = capacity if cache_seqlens is None else int(cache_seqlens[b])
            table = None if block_table is None else block_table[b].long()
            in_order = (cache.keys(x[b] if table is None else x, table, length) for x in (k_cache, v_cache))
            k, v = (x.repeat_interleave(group, dim=1).transpose(0, 1).to(wide) for x in in_order)
            results.append(cache.attend_entry(rows, q[b].transpose(0, 1).to(wide), k, v, number))
        out, lse = (torch.stack(each) for each in zip(*cache.batch(results, number), strict=True))
        out = out.transpose(1, 2).to(q.dtype)
        return (out, lse) if return_softmax_lse else out

    return attention


right_kvcache = with_kvcache(Cache, "right_kvcache")


@wrong_step(with_kvcache, Cache, "splits")
def splits_without_rest(self: Cache, length: int, number: int) -> Iterator[slice]:
    """Leave out the last keys if the number of splits does not divide the number of keys.

    Each split has as many keys as the quotient, rounded down; the remaining keys are ignored. Results are right if the
    division leaves no remainder, and without splits.

    Source: tile-ai/tilelang PR #2010
    """
    size = length // number
    for start in range(number):
        yield slice(start * size, (start + 1) * size)


@wrong_step(with_kvcache, Cache, "batch")
def splits_of_the_first_entry(self: Cache, results: list[Any], number: int) -> list[Any]:
    """Write the results of all batch entries to the same place when splits are merged.

    The stride between batch entries is 0, so that the result of the last entry is returned for all. Results are right
    for a single batch entry, and without splits.

    Source: vllm-project/flash-attention PR #176
    """
    return results if number == 1 else [results[-1]] * len(results)


@wrong_step(with_kvcache, Cache, "keys")
def last_page_whole(self: Cache, cache: Tensor, table: Tensor | None, length: int) -> Tensor:
    """Attend to the whole last page, although it may contain other numbers after the last key.

    Results are right if the number of keys is a multiple of the size of a page, and for a cache in one piece.

    Source: hw-native-sys/simpler PR #72
    """
    size = 1 if table is None else cache.shape[1]
    return Cache.keys(self, cache, table, -(-length // size) * size)


@wrong_step(with_kvcache, Cache, "keys")
def pages_in_a_row(self: Cache, cache: Tensor, table: Tensor | None, length: int) -> Tensor:
    """Read pages in pairs, as if the second page of each pair followed the first in memory.

    The pages of a batch entry need not be adjacent in memory. Results are right if they are, for one page, and for a
    cache in one piece.

    Source: hw-native-sys/pypto PR #470
    """
    if table is not None:
        behind = torch.clamp(table[0::2] + 1, max=len(cache) - 1)
        table = torch.stack([table[0::2], behind], dim=-1).flatten()[: len(table)]
    return Cache.keys(self, cache, table, length)
