"""The interface of flash-attn's ``flash_attn_with_kvcache``: keys and values that were stored before.

New keys and rotations are not tested.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.flash import OPTIONS, flash_options
from attention_conformance.interfaces.further import first_in, in_8_bits, in_own_dtype
from attention_conformance.interfaces.interface import (
    Interface,
    Parameters,
    Request,
    Returned,
    first_of,
    option_of,
    others,
    swap_axes,
)
from attention_conformance.interfaces.packing import in_pages
from attention_conformance.kernel.with_torch import torch

TABLES = ("block_table", "page_table")


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    query, key, value = request.lengths_first
    keys = torch.full((len(query),), key.shape[1], device=query.device)
    if request.lengths is not None:
        keys = request.lengths[:, 1]
    options["cache_seqlens"] = keys.to(torch.int32)
    if request.page:
        key, table = in_pages(key, request.page, keys, request.seed)
        value, _ = in_pages(value, request.page, keys, request.seed)
        options[first_in(TABLES, has)] = table
    tensors = in_8_bits(request, query, key, value)
    output, lse = first_of(kernel(*tensors, **flash_options(request, has, options)))
    return Returned(swap_axes(in_own_dtype(request, output)), lse if request.log_sum_exp else None)


def with_all_queries(call: AttentionCall) -> AttentionCall:
    """Return the call with lengths of the cache alone: each entry has all queries."""
    if call.lengths is None:
        return call
    return call.replace(lengths=np.stack([np.full(len(call.lengths), call.sizes["L"]), call.lengths[:, 1]], axis=-1))


FLASH_KVCACHE = Interface(
    "flash-kvcache",
    "(q, k_cache, v_cache, k=None, v=None, cache_seqlens=None, softmax_scale=None, causal=False, …) on (B, L, H, E)",
    (frozenset({"k_cache"}), frozenset({"cache_seqlens"})),
    MappingProxyType(
        OPTIONS
        | {"cache_seqlens": option_of("ragged-batch")}
        | dict.fromkeys(TABLES, option_of("paged-keys", neutral=None))
        | others("k", "v", "rotary_cos", "rotary_sin", "rotary_seqlens", "rotary_interleaved", "cache_batch_idx")
        | others("cache_leftpad", "cu_seqlens_q", "cu_seqlens_k_new", "max_seqlen_q")
        | others("scheduler_metadata")
    ),
    _put,
    found_out=("grouped-heads",),
    expressible=with_all_queries,
)
