"""The interface of a function of three tensors, and perhaps of a scale."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import Interface, Parameters, Request, Returned, option_of


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    if "scale" in has and request.scale is not None:
        options["scale"] = request.scale
    return Returned(kernel(request.query, request.key, request.value, **options))


PLAIN = Interface(
    "plain",
    "(query (…, L, d), keys (…, T, d), values (…, T, m)) → (…, L, m)",
    (),
    MappingProxyType({"scale": option_of("scale")}),
    _put,
)
