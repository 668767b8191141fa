"""The interface of MLX's ``mx.fast.scaled_dot_product_attention``.

One parameter is a mask, a bias, or the word "causal".
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
    option_of,
    others,
)
from attention_conformance.interfaces.masks import with_mask_or_causal


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    # It has no scale of its own.
    options["scale"] = request.scale if request.scale is not None else request.query.shape[-1] ** -0.5
    if request.mask is not None or request.causal:
        options["mask"] = request.mask if request.mask is not None else "causal"
    if request.sinks is not None:
        options["sinks"] = request.sinks
    return Returned(kernel(request.query, request.key, request.value, **options))


MLX = Interface(
    "mlx",
    "(q, k, v, *, scale, mask=None or an array or 'causal', sinks=None, stream=None) on (B, H, L, E)",
    (frozenset({"q", "mask", "scale"}), frozenset({"queries", "mask", "scale"})),
    MappingProxyType(
        {
            "scale": option_of("scale"),
            "mask": option_of("boolean-mask", "additive-mask", "causal-rectangle"),
            "sinks": option_of("sinks", neutral=None),
            **others("stream"),
        }
    ),
    _put,
    found_out=("grouped-heads", "causal"),
    expressible=with_mask_or_causal,
)
