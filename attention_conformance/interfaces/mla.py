"""The interface of FlashMLA's ``flash_mla_with_kvcache``: one cache holds keys whose first columns are the values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.further_tensors import with_values_in_keys
from attention_conformance.interfaces.flash import flash_options
from attention_conformance.interfaces.flash_kvcache import with_all_queries
from attention_conformance.interfaces.interface import (
    GIVEN,
    LSE,
    Interface,
    Mark,
    Parameters,
    Request,
    Returned,
    first_of,
    option_of,
    others,
    swap_axes,
)
from attention_conformance.interfaces.packing import in_pages
from attention_conformance.kernel.latent_sizes import FLASH_MLA
from attention_conformance.kernel.with_torch import torch

PAGE = 64
"""The number of keys in a page for a kernel that takes no cache in one piece."""
SCHEDULES = ("tile_scheduler_metadata", "num_splits")
"""Parameters for the result of a scheduler; with None the kernel computes it itself."""


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    query, cache, value = request.lengths_first
    if not request.shared:
        # Any keys and values are the columns of a cache, those of the values with queries of 0.
        cache = torch.cat([value, cache], dim=-1)
        query = torch.nn.functional.pad(query, (value.shape[-1], 0))
        scale = 1 / math.sqrt(request.query.shape[-1]) if request.scale is None else request.scale
        request = replace(request, scale=scale)
    keys = torch.full((len(query),), cache.shape[1], device=query.device)
    if request.lengths is not None:
        keys = request.lengths[:, 1]
    page = request.page or (PAGE if has.get("block_table") is Mark.REQUIRED else 0)
    if page:
        cache, options["block_table"] = in_pages(cache, page, keys, request.seed)
    options["cache_seqlens"] = keys.to(torch.int32)
    options["head_dim_v"] = value.shape[-1]
    options |= {name: None for name in SCHEDULES if has.get(name) is Mark.REQUIRED}
    output, lse = first_of(kernel(query, cache, **flash_options(request, has, options)))
    return Returned(swap_axes(output), lse if request.log_sum_exp else None)


def _expressible(call: AttentionCall) -> AttentionCall:
    call = with_all_queries(call)
    return with_values_in_keys(call) if call.shared else call


MLA = Interface(
    "mla",
    "(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale=None, causal=False) on (B, L, H, E)",
    (frozenset({"head_dim_v"}),),
    MappingProxyType(
        {
            "head_dim_v": option_of("shared-keys-values"),
            "cache_seqlens": option_of("ragged-batch"),
            "block_table": option_of("paged-keys"),
            "softmax_scale": option_of("scale", "default-scale"),
            "causal": option_of("causal", "causal-rectangle", neutral=False),
            **dict.fromkeys(LSE, option_of("log-sum-exp")),
            **dict.fromkeys(SCHEDULES, GIVEN),
            **others("is_fp8_kvcache", "indices", "attn_sink", "topk_length", "extra_k_cache"),
        }
    ),
    _put,
    by_place=2,
    found_out=("grouped-heads", "log-sum-exp"),
    expressible=_expressible,
    sizes=(FLASH_MLA,),
)
