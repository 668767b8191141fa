"""Packing of sequences of different lengths, one after another, and of caches into pages.

Axes: B batch entries, L queries, T keys, H heads, G heads of keys and values, E columns.
"""

from __future__ import annotations

import numpy as np

from attention_conformance.kernel.torch_import import torch

BEYOND = 1e4
"""The number that fills unused pages and the space after the last key: a kernel that reads it gives wrong results."""


def pack(x: torch.Tensor, lengths: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return x (B, L, H, E) packed to (Σ_b L_b, H, E), the index at which each sequence starts, and the longest length.

    Sequence b has ``lengths[b]`` = L_b rows, or L if there are no lengths. The starts are int32 of shape (B + 1,).
    """
    B, L = x.shape[:2]
    key_counts = torch.full((B,), L, device=x.device) if lengths is None else lengths
    starts = torch.nn.functional.pad(torch.cumsum(key_counts, 0), (1, 0)).to(torch.int32)
    longest = int(key_counts.max()) if B else 0
    if lengths is None:
        return x.reshape(-1, *x.shape[2:]), starts, longest
    inside = torch.arange(L, device=x.device) < key_counts[:, None]
    return x[inside], starts, longest


def unpack(packed: torch.Tensor, like: tuple[int, int], lengths: torch.Tensor | None) -> torch.Tensor:
    """Unpack (Σ_b L_b, …), where sequence b has L_b rows, to ``like`` = (B, L) and further axes, padded with zeros."""
    if lengths is None:
        return packed.reshape(*like, *packed.shape[1:])
    inside = torch.arange(like[1], device=packed.device) < lengths[:, None]
    whole = packed.new_zeros((*like, *packed.shape[1:]))
    # Use index_put, which autograd differentiates.
    return whole.index_put(torch.nonzero(inside, as_tuple=True), packed)


def in_pages(x: torch.Tensor, size: int, lengths: torch.Tensor | None, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a cache (B, T, G, E) cut into N pages (N, size, G, E) that lie in random order, and the table of pages.

    The table, int32 of shape (B, pages of an entry), holds the indices of each batch entry's pages. About a third of
    the pages are unused. Unused pages, and the space after the last key of a batch entry, are filled with BEYOND.
    """
    B, T = x.shape[:2]
    key_counts = torch.full((B,), T, device=x.device) if lengths is None else lengths
    each = -(-T // size)
    total = B * each + max(1, B * each // 2)
    order = torch.tensor(np.random.default_rng(seed).permutation(total)[: B * each], device=x.device)
    beyond = torch.arange(T, device=x.device)[None, :, None, None] >= key_counts[:, None, None, None]
    padded = torch.nn.functional.pad(x.masked_fill(beyond, BEYOND), (0, 0, 0, 0, 0, each * size - T), value=BEYOND)
    pages = x.new_full((total, size, *x.shape[2:]), BEYOND)
    pages = pages.index_copy(0, order, padded.reshape(-1, size, *x.shape[2:]))
    return pages, order.reshape(B, each).to(torch.int32)
