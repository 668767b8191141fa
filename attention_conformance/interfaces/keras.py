"""The interface of ``keras.ops.dot_product_attention``, on arrays of its backend."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import (
    Interface,
    Parameters,
    Request,
    Returned,
    option_of,
    others,
    swap_axes,
)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    if request.scale is not None:
        options["scale"] = request.scale
    if request.mask is not None:
        options["mask" if request.visible is not None else "bias"] = request.mask
    if request.causal:
        options["is_causal"] = True
    if request.softcap:
        options["attn_logits_soft_cap"] = request.softcap
    return Returned(swap_axes(kernel(*request.lengths_first, **options)))


KERAS = Interface(
    "keras",
    "(query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None,"
    " attn_logits_soft_cap=None) on (B, L, H, E)",
    (frozenset({"flash_attention", "bias"}), frozenset({"attn_logits_soft_cap"})),
    MappingProxyType(
        {
            "bias": option_of("additive-mask"),
            "mask": option_of("boolean-mask"),
            "scale": option_of("scale", "default-scale"),
            "is_causal": option_of("causal", "causal-rectangle", neutral=False),
            "attn_logits_soft_cap": option_of("softcap"),
            **others("flash_attention"),
        }
    ),
    _put,
    found_out=("grouped-heads",),
)
