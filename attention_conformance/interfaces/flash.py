"""The interfaces of flash-attn's functions: padded tensors, paged caches, sequences without padding.

Appending new keys to a cache and rotary embeddings are not tested. Axes: B batch entries, L queries, H heads, E columns
of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.interface import (
    GIVEN,
    Interface,
    Mark,
    Option,
    Parameters,
    Request,
    Returned,
    first_of,
    neutral_option,
    option_of,
    swap_axes,
)
from attention_conformance.interfaces.libraries import library, names_in
from attention_conformance.interfaces.packed_sequences import in_pages, pack, unpack
from attention_conformance.interfaces.parameter_names import (
    FURTHER,
    LSE,
    arguments,
    first_in,
    in_8_bits,
    in_own_dtype,
    usual,
)
from attention_conformance.interfaces.reading import Reading
from attention_conformance.kernel.torch_import import torch

OPTIONS: dict[str, Option] = (
    usual("softmax_scale causal window_size softcap deterministic dropout_p qv pack_gqa sm_margin")
    | usual(" ".join(LSE))
    | {**FURTHER, "attention_chunk": neutral_option(0)}
)
"""The options of flash-attn's functions, by the parameter's name.

Since flash-attn 2.1 the diagonal of causality and windows ends in the bottom right corner of the logits.
"""
FLASH = library(
    "flash",
    "(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, return_lse=False) on (B, L, H, E)",
    ("softmax_scale", "window_size", "causal", *LSE),
    OPTIONS,
    Reading(axes="BLHE"),
    found_out=("grouped-heads",),
)
"""The interface of flash-attn's ``flash_attn_func``, in all versions."""


def _call(
    kernel: Callable[..., Any],
    tensors: tuple[torch.Tensor, ...],
    request: Request,
    has: Parameters,
    given: dict[str, Any],
    options: Mapping[str, Option] = MappingProxyType(OPTIONS),
) -> tuple[Any, Any]:
    """Call the kernel with ``given`` and the request's options; return the output, and the log-sum-exp if requested."""
    given |= arguments(names_in(options, has), request, has)
    output, lse = first_of(kernel(*in_8_bits(request, *tensors), **given))
    return in_own_dtype(request, output), lse if request.log_sum_exp else None


# ---- caches ----------------------------------------------------------------------------------------------------------

TABLES = ("block_table", "page_table")
PAGE = 16
"""The number of keys in a page, for a kernel that takes only caches cut into pages, if the call has no pages."""


def _lengths_of_keys(request: Request) -> torch.Tensor:
    if request.lengths is not None:
        return request.lengths[:, 1]
    return torch.full((len(request.key),), request.key.shape[2], device=request.query.device)


def _put_with_cache(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    query, key, value = request.lengths_first
    keys = _lengths_of_keys(request)
    options["cache_seqlens"] = keys.to(torch.int32)
    required = any(has.get(name) is Mark.REQUIRED for name in TABLES)
    if page := request.page or (PAGE if required else 0):
        key, table = in_pages(key, page, keys, request.seed)
        value, _ = in_pages(value, page, keys, request.seed)
        options[first_in(TABLES, has)] = table
    output, lse = _call(kernel, (query, key, value), request, has, options)
    return Returned(swap_axes(output), lse)


def _with_all_queries(call: AttentionCall) -> AttentionCall:
    """Return the call, changed so that each batch entry has all L queries; the numbers of keys remain as they are."""
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
        | usual("k v rotary_cos rotary_sin rotary_seqlens rotary_interleaved cache_batch_idx cache_leftpad")
        | usual("cu_seqlens_q cu_seqlens_k_new max_seqlen_q scheduler_metadata")
    ),
    _put_with_cache,
    found_out=("grouped-heads",),
    expressible=_with_all_queries,
)
"""The interface of flash-attn's ``flash_attn_with_kvcache``, which reads keys and values from a cache."""

# ---- sequences without padding ---------------------------------------------------------------------------------------

STARTS = (("cu_seqlens_q", "cu_seqlens_k"), ("cu_seq_q", "cu_seq_k"))
"""Pairs of parameters for the indices at which each sequence starts in the packed queries and in the packed keys."""
LONGEST = (("max_seqlen_q", "max_seqlen_k"), ("max_q", "max_k"))
PACKED_OPTIONS: Mapping[str, Option] = MappingProxyType(
    OPTIONS
    | dict.fromkeys((*STARTS[0], *STARTS[1], *LONGEST[0], *LONGEST[1]), GIVEN)
    | usual("scale is_causal seqused_q seqused_k block_table page_table leftpad_k return_aux")
)


def _put_packed(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    B, _, L, _ = request.query.shape
    lengths = (None, None) if request.lengths is None else request.lengths.unbind(dim=1)
    query, key, value = request.lengths_first
    packed_q, *of_queries = pack(query, lengths[0])
    packed_k, *of_keys = pack(key, lengths[1])
    packed_v, *_ = pack(value, lengths[1])
    for known, number in ((STARTS, 0), (LONGEST, 1)):
        for pair in known:
            if pair[0] in has:
                options |= {pair[0]: of_queries[number], pair[1]: of_keys[number]}
    output, lse = _call(kernel, (packed_q, packed_k, packed_v), request, has, options, PACKED_OPTIONS)
    if isinstance(output, torch.Tensor) and output.dim() == 3 and len(output) == len(packed_q):
        output = unpack(output, (B, L), lengths[0]).transpose(1, 2)
    if isinstance(lse, torch.Tensor) and lse.shape == (packed_q.shape[1], len(packed_q)):
        lse = unpack(lse.T, (B, L), lengths[0]).transpose(1, 2)
    return Returned(output, lse)


FLASH_VARLEN = Interface(
    "flash-varlen",
    "(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False, …)"
    " on (B·L, H, E)",
    tuple(frozenset({names[0]}) for names in STARTS),
    PACKED_OPTIONS,
    _put_packed,
    found_out=("grouped-heads", "ragged-batch"),
)
"""The interface of flash-attn's ``flash_attn_varlen_func`` and PyTorch's ``varlen_attn``."""
