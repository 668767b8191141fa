"""flash-attn's ``flash_attn_with_kvcache``: keys and values that were stored before.

A cache that is full is given; new keys, lengths shorter than the cache, pages and rotations are not tested.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from theorems.kernel.interfaces.flash import OPTIONS, flash_options
from theorems.kernel.interfaces.interface import (
    GIVEN,
    Interface,
    Parameters,
    Request,
    Returned,
    first_of,
    others,
    swap_axes,
)
from theorems.kernel.with_torch import torch


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    query, key, _ = tensors = request.lengths_first
    options["cache_seqlens"] = torch.full((len(query),), key.shape[1], dtype=torch.int32, device=query.device)
    output, lse = first_of(kernel(*tensors, **flash_options(request, has, options)))
    return Returned(swap_axes(output), lse if request.log_sum_exp else None)


FLASH_KVCACHE = Interface(
    "flash-kvcache",
    "(q, k_cache, v_cache, k=None, v=None, cache_seqlens=None, softmax_scale=None, causal=False, …) on (B, L, H, E)",
    (frozenset({"k_cache"}), frozenset({"cache_seqlens"})),
    MappingProxyType(
        OPTIONS
        | {"cache_seqlens": GIVEN}
        | others("k", "v", "rotary_cos", "rotary_sin", "rotary_seqlens", "rotary_interleaved", "cache_batch_idx")
        | others("cache_leftpad", "block_table", "page_table", "cu_seqlens_q", "cu_seqlens_k_new", "max_seqlen_q")
        | others("scheduler_metadata")
    ),
    _put,
    found_out=("grouped-heads",),
    is_one_expression=False,
)
