"""The interface of equinox's ``dot_product_attention``: one head of one sequence, (L, E); its scale is always 1/√E."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import (
    GIVEN,
    Interface,
    Parameters,
    Request,
    Returned,
    first_of,
    neutral_option,
    option_of,
    others,
)
from attention_conformance.kernel.with_torch import torch


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    (B, H, L, _), T = request.query.shape, request.key.shape[2]
    mask = None if request.mask is None else request.mask.expand(B, H, L, T).flatten(0, 1)
    outputs = []
    for place, tensors in enumerate(
        zip(*(x.flatten(0, 1) for x in (request.query, request.key, request.value)), strict=True)
    ):
        if mask is not None:
            options["mask"] = mask[place]
        outputs.append(first_of(kernel(*tensors, **options))[0])
    return Returned(torch.stack(outputs).reshape(B, H, L, -1))


EQUINOX = Interface(
    "equinox",
    "(query, key_, value, mask=None, dropout=None, *, key=None, inference=None) on (L, E)",
    (frozenset({"key_", "inference"}), frozenset({"key_", "dropout"})),
    MappingProxyType(
        {
            "key_": GIVEN,
            "mask": option_of("boolean-mask"),
            "inference": neutral_option(True),
            **others("key", "dropout"),
        }
    ),
    _put,
)
