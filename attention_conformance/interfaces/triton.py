"""The interface of Triton's tutorial kernel on (B, H, L, E): causality and the scale are always given."""

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
    option_of,
    others,
)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    # It has no scale of its own.
    scale = request.scale if request.scale is not None else request.query.shape[-1] ** -0.5
    options |= {"causal": request.causal, "sm_scale": scale}
    return Returned(first_of(kernel(request.query, request.key, request.value, **options))[0])


TRITON = Interface(
    "triton",
    "(q, k, v, causal, sm_scale, warp_specialize=True) on (B, H, L, E)",
    (frozenset({"causal", "sm_scale"}),),
    MappingProxyType(
        {
            "causal": option_of("causal", "causal-rectangle"),
            "sm_scale": option_of("scale"),
            **others("warp_specialize"),
        }
    ),
    _put,
)
