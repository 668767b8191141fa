"""Pack sequences of different lengths one behind another, and caches into pages."""

from __future__ import annotations

import numpy as np

from attention_conformance.kernel.with_torch import torch

BEYOND = 1e4
"""Fills pages that no table names, and places after the last key of a page: a number that would be noticed."""


def pack(x: torch.Tensor, lengths: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Pack (B, L, H, E) to (ΣL_b, H, E), with the starts of sequences, (B + 1,) of int32, and the longest length."""
    B, L = x.shape[:2]
    own = torch.full((B,), L, device=x.device) if lengths is None else lengths
    starts = torch.nn.functional.pad(torch.cumsum(own, 0), (1, 0)).to(torch.int32)
    longest = int(own.max()) if B else 0
    if lengths is None:
        return x.reshape(-1, *x.shape[2:]), starts, longest
    there = torch.arange(L, device=x.device) < own[:, None]
    return x[there], starts, longest


def unpack(packed: torch.Tensor, like: tuple[int, int], lengths: torch.Tensor | None) -> torch.Tensor:
    """Unpack (ΣL_b, …) to (B, L, …), zero where there is padding."""
    if lengths is None:
        return packed.reshape(*like, *packed.shape[1:])
    there = torch.arange(like[1], device=packed.device) < lengths[:, None]
    whole = packed.new_zeros((*like, *packed.shape[1:]))
    # Indices, not a mask: autograd finds its way through.
    return whole.index_put(torch.nonzero(there, as_tuple=True), packed)


def in_pages(x: torch.Tensor, size: int, lengths: torch.Tensor | None, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut a cache (B, T, G, E) into pages (N, size, G, E) in any order, with their table (B, pages) of int32.

    A third of the pages belong to no entry; they, and the places after the last key of an entry, hold other numbers.
    """
    B, T = x.shape[:2]
    own = torch.full((B,), T, device=x.device) if lengths is None else lengths
    each = -(-T // size)
    total = B * each + max(1, B * each // 2)
    order = torch.tensor(np.random.default_rng(seed).permutation(total)[: B * each], device=x.device)
    beyond = torch.arange(T, device=x.device)[None, :, None, None] >= own[:, None, None, None]
    padded = torch.nn.functional.pad(x.masked_fill(beyond, BEYOND), (0, 0, 0, 0, 0, each * size - T), value=BEYOND)
    pages = x.new_full((total, size, *x.shape[2:]), BEYOND)
    pages = pages.index_copy(0, order, padded.reshape(-1, size, *x.shape[2:]))
    return pages, order.reshape(B, each).to(torch.int32)
