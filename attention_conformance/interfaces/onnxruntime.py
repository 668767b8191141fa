"""The interface of the ONNX operator Attention, as its reference and onnxruntime evaluate it.

Tensors are (B, H, L, E), and flags are numbers.
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
    first_of,
    neutral_option,
    option_of,
    others,
)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    if request.scale is not None:
        options["scale"] = request.scale
    if request.mask is not None:
        options["attn_mask"] = request.mask
    if request.causal:
        options["is_causal"] = 1
    if request.softcap:
        options["softcap"] = request.softcap
    return Returned(first_of(kernel(request.query, request.key, request.value, **options))[0])


ONNXRUNTIME = Interface(
    "onnxruntime",
    "(Q, K, V, attn_mask=None, past_key=None, past_value=None, *, is_causal=0, scale=None, softcap=0.0, …)"
    " on (B, H, L, E) → (Y, …)",
    (frozenset({"past_key", "past_value"}), frozenset({"qk_matmul_output_mode"})),
    MappingProxyType(
        {
            "attn_mask": option_of("boolean-mask", "additive-mask"),
            "is_causal": option_of("causal", "causal-rectangle"),
            "scale": option_of("scale", "default-scale"),
            "softcap": option_of("softcap"),
            "past_key": neutral_option(None),
            "past_value": neutral_option(None),
            **others("q_num_heads", "kv_num_heads", "qk_matmul_output_mode", "softmax_precision"),
            **others("nonpad_kv_seqlen"),
        }
    ),
    _put,
    found_out=("grouped-heads",),
)
