"""The interface of xformers' ``memory_efficient_attention``: (B, L, H, E), and a bias in exactly the logits' shape.

Causality and boolean masks are objects of its own there; they are not tested.
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
    neutral_option,
    option_of,
    others,
    swap_axes,
)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    if request.scale is not None and "scale" in has:
        options["scale"] = request.scale
    if request.mask is not None:
        B, H, L, _ = request.query.shape
        options["attn_bias"] = request.mask.expand(B, H, L, request.key.shape[2])
    return Returned(swap_axes(kernel(*request.lengths_first, **options)))


XFORMERS = Interface(
    "xformers",
    "(query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None) on (B, L, H, E)",
    (frozenset({"attn_bias"}),),
    MappingProxyType(
        {
            "attn_bias": option_of("additive-mask"),
            "scale": option_of("scale", "default-scale"),
            "p": neutral_option(0.0),
            **others("op", "output_dtype"),
        }
    ),
    _put,
)
