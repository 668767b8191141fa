"""flax's ``dot_product_attention``, linen and nnx: its scale is always 1/√E, and `deterministic` is no dropout."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from theorems.kernel.interfaces.interface import (
    Interface,
    Parameters,
    Request,
    Returned,
    claimed,
    neutral,
    swap_axes,
    untested,
)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    if request.mask is not None:
        options["mask" if request.visible is not None else "bias"] = request.mask
    if request.causal:
        options["is_causal"] = True
    return Returned(swap_axes(kernel(*request.in_lengths_first, **options)))


FLAX = Interface(
    "flax",
    "(query, key, value, bias=None, mask=None, broadcast_dropout=True, dropout_rng=None, dropout_rate=0.0,"
    " deterministic=False, …) on (B, L, H, E)",
    (frozenset({"dropout_rng"}), frozenset({"broadcast_dropout"})),
    MappingProxyType(
        {
            "bias": claimed("additive-mask"),
            "mask": claimed("boolean-mask"),
            "is_causal": claimed("causal", "causal-rectangle", neutral=False),
            "dropout_rate": neutral(0.0),
            "deterministic": neutral(True),
            **untested("broadcast_dropout", "dropout_rng", "dtype", "precision", "module", "promote_dtype"),
            **untested("force_fp32_for_softmax", "einsum_dot_general", "qk_attn_weights_einsum"),
            **untested("attn_weights_value_einsum"),
        }
    ),
    _put,
)
