"""The interface of PyTorch's ``scaled_dot_product_attention`` on nested tensors: sequences of different lengths.

The layout is jagged. No parameter shows that a kernel takes such tensors: the interface has to be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import (
    Interface,
    Parameters,
    Request,
    Returned,
    named_options,
    option_of,
    others,
)
from attention_conformance.interfaces.packing import pack, unpack
from attention_conformance.kernel.with_torch import torch


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    B, _, L, _ = request.query.shape
    lengths = (None, None) if request.lengths is None else request.lengths.unbind(dim=1)
    query, key, value = request.lengths_first
    (q, starts_q, _), (k, starts_k, _) = pack(query, lengths[0]), pack(key, lengths[1])
    v, *_ = pack(value, lengths[1])
    # Keys and values are of one length if their places are one tensor.
    at = starts_q.long(), starts_k.long()
    nested = (torch.nested.nested_tensor_from_jagged(x, at[n]).transpose(1, 2) for x, n in ((q, 0), (k, 1), (v, 1)))
    options |= named_options(request, scale="scale", causal="is_causal", groups="enable_gqa")
    output = kernel(*nested, **options).transpose(1, 2).values()
    return Returned(unpack(output, (B, L), lengths[0]).transpose(1, 2))


NESTED = Interface(
    "nested",
    "(query, key, value, is_causal=False, scale=None, enable_gqa=False) on nested tensors (B, H, L, E)",
    (),
    MappingProxyType(
        {
            "is_causal": option_of("causal", neutral=False),
            "scale": option_of("scale", "default-scale"),
            "enable_gqa": option_of("grouped-heads"),
            **others("attn_mask", "dropout_p"),
        }
    ),
    _put,
    found_out=("causal", "grouped-heads", "ragged-batch"),
)
