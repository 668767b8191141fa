"""flash-attn's ``flash_attn_varlen_func`` and PyTorch's ``varlen_attn``: sequences one after another, without padding.

A batch of equal lengths is given; other lengths, and pages, are not tested.
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
    option_of,
    others,
)
from theorems.kernel.with_torch import torch

STARTS = (("cu_seqlens_q", "cu_seqlens_k"), ("cu_seq_q", "cu_seq_k"))
"""What the places at which sequences start are called."""
LONGEST = (("max_seqlen_q", "max_seqlen_k"), ("max_q", "max_k"))


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    B, H, L, _ = request.query.shape
    lengths = (L, request.key.shape[2])
    for pairs in STARTS:
        if pairs[0] in has:
            starts = (torch.arange(B + 1, dtype=torch.int32, device=request.query.device) * n for n in lengths)
            options |= dict(zip(pairs, starts, strict=True))
    for pairs in LONGEST:
        if pairs[0] in has:
            options |= dict(zip(pairs, lengths, strict=True))
    packed = [x.flatten(0, 1) for x in request.lengths_first]
    output, lse = first_of(kernel(*packed, **flash_options(request, has, options)))
    if isinstance(output, torch.Tensor) and output.dim() == 3 and len(output) == B * L:
        output = output.reshape(B, L, *output.shape[1:]).transpose(1, 2)
    if isinstance(lse, torch.Tensor) and lse.shape == (H, B * L):
        lse = lse.reshape(H, B, L).transpose(0, 1)
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
    found_out=("grouped-heads",),
    is_one_expression=False,
)
