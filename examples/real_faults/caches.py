"""Faults of decoding with a cache of keys: splits, pages, and latent keys whose first columns are the values.

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
from examples.real_faults.rows import Rows, attend, softmax

BLOCK = 16
"""The number of keys in a block, which is never divided between splits."""
PAGE = (64, 1, 576)
"""The shape of FlashMLA's pages: 64 keys, one head, 576 columns."""
VALUES = 512
"""The number of columns of a page that are values."""


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


# ---- latent keys ----


class Latent:
    """The correct steps of a kernel with latent keys (T, H', E), whose first columns are the values, for a batch entry.

    Autograd differentiates the steps.
    """

    def of_logits(self, keys: Tensor, width: int) -> Tensor:
        """Return the keys for computing logits, all columns of the latent keys; the first ``width`` are the values."""
        return keys

    def values(self, keys: Tensor, width: int) -> Tensor:
        """Return the values, the first ``width`` columns of the latent keys."""
        return keys[..., :width]


@interface
def with_latent(steps: type[Latent]) -> Kernel:
    """Make a kernel with the interface of FlashMLA's ``flash_mla_with_kvcache`` from a class of steps.

    The kernel takes queries (B, L, H, E) and pages (N, P, H', E), and returns (B, L, H, M) and log-sum-exps (B, H, L).
    """

    def attention(
        q: Tensor,
        k_cache: Tensor,
        block_table: Tensor,
        cache_seqlens: Tensor,
        head_dim_v: int,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        latent, rows, results = steps(), Rows(or_root(softmax_scale, q), causal), []
        for b, length in enumerate(cache_seqlens.tolist()):
            keys = Cache().keys(k_cache, block_table[b].long(), length)
            qkv = q[b], latent.of_logits(keys, head_dim_v), latent.values(keys, head_dim_v)
            results.append(attend(rows, *(x.transpose(0, 1) for x in qkv)))
        out, lse = (torch.stack(each) for each in zip(*results, strict=True))
        return out.transpose(1, 2), lse

    return attention


@interface
def with_flash_mla(steps: type[Latent]) -> Kernel:
    """Make a kernel that takes only the shapes that FlashMLA takes, from a class of steps.

    The kernel takes queries (B, L, H, 576) and pages (N, 64, 1, 576), and returns (B, L, H, 512) and log-sum-exps (B,
    H, L). The kernel raises a ValueError for other sizes.
    """
    kernel = with_latent(steps)

    def attention(
        q: Tensor,
        k_cache: Tensor,
        block_table: Tensor,
        cache_seqlens: Tensor,
        head_dim_v: int,
        tile_scheduler_metadata: Any,
        num_splits: Any,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        if tuple(k_cache.shape[1:]) != PAGE or q.shape[-1] != PAGE[-1] or head_dim_v != VALUES:
            raise ValueError(
                f"each page must have shape {PAGE}, queries {PAGE[-1]} columns, and values {VALUES} columns"
            )
        output: tuple[Tensor, Tensor] = kernel(
            q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal
        )
        return output

    return attention


right_latent, right_flash_mla = with_latent(Latent, "right_latent"), with_flash_mla(Latent, "right_flash_mla")


@wrong_step(with_latent, Latent, "values")
def values_in_step_of_their_width(self: Latent, keys: Tensor, width: int) -> Tensor:
    """Read values as if rows in memory were as wide as the values, although the rows are as wide as the keys.

    In the reported kernel, the fault occurs from the second block of keys on. Results are right if values are as wide
    as keys, and for a single key.

    Source: ikawrakow/ik_llama.cpp PR #2031
    """
    flat = keys.transpose(0, 1).flatten(1)[:, : len(keys) * width]
    return flat.reshape(len(flat), len(keys), width).transpose(0, 1)


@wrong_step(with_latent, Latent, "values")
def last_columns_are_values(self: Latent, keys: Tensor, width: int) -> Tensor:
    """Read values from the last columns of the latent keys, although the values are the first columns.

    In the reported kernel, pages of more than one key silently give wrong values in all code paths. The last columns,
    read here, hold the part of a key that is rotated by its position. Results are right if values are as wide as keys.

    Source: ROCm/aiter #3095
    """
    return keys[..., keys.shape[-1] - width :]


@wrong_step(with_latent, Latent, "of_logits")
def gradient_of_values_alone(self: Latent, keys: Tensor, width: int) -> Tensor:
    """Omit the gradient through the logits from the gradient of those columns of latent keys that are values.

    In the reported kernel, keys and values are separate columns, for which dV alone is right. Here the values are
    columns of the keys, so that the logits also depend on them. The output, dQ and the gradient of other columns are
    right.

    Source: tenstorrent/tt-metal PR #45621
    """
    return torch.cat([keys[..., :width].detach(), keys[..., width:]], dim=-1)


@wrong_step(with_latent, Latent, "values")
def gradient_of_keys_alone(self: Latent, keys: Tensor, width: int) -> Tensor:
    """Omit the gradient through the values from the gradient of a tensor that serves as both keys and values.

    The cited change states the rule: the gradient of such a tensor is the sum of the gradients through keys and values.
    We break the rule here: only the gradient through keys is returned. The output and dQ are right.

    Source: ROCm/aiter PR #4766
    """
    return Latent.values(self, keys, width).detach()


@wrong_step(with_flash_mla, Latent, "values")
def half_of_the_values(self: Latent, keys: Tensor, width: int) -> Tensor:
    """Compute only the first 256 columns of the output, and leave the other columns zero.

    In the reported kernel, 128 of 256 columns are computed; here 256 of 512. Results are right if values have at most
    256 columns.

    Source: gittensor-ai-lab/sparkinfer #425
    """
    values = Latent.values(self, keys, width).clone()
    values[..., 256:] = 0
    return values


@wrong_step(with_flash_mla, Latent, "of_logits")
def whole_steps_of_columns(self: Latent, keys: Tensor, width: int) -> Tensor:
    """Compute logits from whole steps of 128 columns, so that the last 64 of 576 columns are left out.

    Results are right if the number of columns of keys is a multiple of 128. The fault is our own; nobody reported it.
    """
    columns = keys.clone()
    columns[..., keys.shape[-1] // 128 * 128 :] = 0
    return columns
