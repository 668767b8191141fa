"""The interface of flash-attn's ``flash_attn_varlen_func`` and PyTorch's ``varlen_attn``: sequences without padding."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.flash import OPTIONS, flash_options
from attention_conformance.interfaces.further import in_8_bits, in_own_dtype
from attention_conformance.interfaces.interface import (
    GIVEN,
    Interface,
    Parameters,
    Request,
    Returned,
    first_of,
    option_of,
    others,
)
from attention_conformance.interfaces.packing import pack, unpack
from attention_conformance.kernel.with_torch import torch

STARTS = (("cu_seqlens_q", "cu_seqlens_k"), ("cu_seq_q", "cu_seq_k"))
"""The names of parameters for the places at which sequences start."""
LONGEST = (("max_seqlen_q", "max_seqlen_k"), ("max_q", "max_k"))


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
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
    tensors = in_8_bits(request, packed_q, packed_k, packed_v)
    output, lse = first_of(kernel(*tensors, **flash_options(request, has, options)))
    output = in_own_dtype(request, output)
    if isinstance(output, torch.Tensor) and output.dim() == 3 and len(output) == len(packed_q):
        output = unpack(output, (B, L), lengths[0]).transpose(1, 2)
    if isinstance(lse, torch.Tensor) and lse.shape == (packed_q.shape[1], len(packed_q)):
        lse = unpack(lse.T, (B, L), lengths[0]).transpose(1, 2)
    return Returned(output, lse if request.log_sum_exp else None)


FLASH_VARLEN = Interface(
    "flash-varlen",
    "(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False, …)"
    " on (B·L, H, E)",
    tuple(frozenset({names[0]}) for names in STARTS),
    MappingProxyType(
        OPTIONS
        | dict.fromkeys((*STARTS[0], *STARTS[1], *LONGEST[0], *LONGEST[1]), GIVEN)
        | {
            "scale": option_of("scale", "default-scale"),
            "is_causal": option_of("causal", "causal-rectangle", neutral=False),
        }
        | others("seqused_q", "seqused_k", "block_table", "page_table", "leftpad_k", "return_aux")
    ),
    _put,
    found_out=("grouped-heads", "ragged-batch"),
)
