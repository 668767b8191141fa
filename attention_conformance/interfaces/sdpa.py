"""The interface of PyTorch's ``scaled_dot_product_attention``; paddle, tinygrad, flex_attention have similar ones."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.further import FURTHER, further_arguments
from attention_conformance.interfaces.interface import (
    LSE,
    Interface,
    Parameters,
    Request,
    Returned,
    ask_for_lse,
    first_of,
    option_of,
    others,
)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    if request.scale is not None and "scale" in has:
        options["scale"] = request.scale
    mask = request.visible if request.visible is not None else request.bias
    if mask is not None:
        options["attn_mask"] = mask
    if request.causal:
        options["is_causal"] = True
    if request.groups > 1:
        options["enable_gqa"] = True
    if request.softcap:
        options["softcap"] = request.softcap
    if request.dropout:
        options["dropout_p"] = request.dropout
    options |= further_arguments(request, has)
    ask_for_lse(request, has, options)
    output, lse = first_of(kernel(request.query, request.key, request.value, **options))
    return Returned(output, lse if request.log_sum_exp else None)


SDPA = Interface(
    "sdpa",
    "(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False) on (B, H, L, E)",
    (frozenset({"attn_mask"}), frozenset({"is_causal"}), frozenset({"enable_gqa"})),
    MappingProxyType(
        {
            "attn_mask": option_of("boolean-mask", "additive-mask"),
            "is_causal": option_of("causal", "causal-rectangle", neutral=False),
            "scale": option_of("scale", "default-scale"),
            "enable_gqa": option_of("grouped-heads"),
            "softcap": option_of("softcap"),
            **FURTHER,
            "dropout_p": option_of("dropout", neutral=0.0),
            **dict.fromkeys(LSE, option_of("log-sum-exp")),
            **others("score_mod", "block_mask", "kernel_options", "return_aux"),
        }
    ),
    _put,
)
