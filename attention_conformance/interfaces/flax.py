"""The interface of flax's ``dot_product_attention``, linen and nnx.

Its scale is always 1/√E, and `deterministic` switches dropout off.
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
    if request.mask is not None:
        options["mask" if request.visible is not None else "bias"] = request.mask
    if request.causal:
        options["is_causal"] = True
    return Returned(swap_axes(kernel(*request.lengths_first, **options)))


FLAX = Interface(
    "flax",
    "(query, key, value, bias=None, mask=None, broadcast_dropout=True, dropout_rng=None, dropout_rate=0.0,"
    " deterministic=False, …) on (B, L, H, E)",
    (frozenset({"dropout_rng"}), frozenset({"broadcast_dropout"})),
    MappingProxyType(
        {
            "bias": option_of("additive-mask"),
            "mask": option_of("boolean-mask"),
            "is_causal": option_of("causal", "causal-rectangle", neutral=False),
            "dropout_rate": neutral_option(0.0),
            "deterministic": neutral_option(True),
            **others("broadcast_dropout", "dropout_rng", "dtype", "precision", "module", "promote_dtype"),
            **others("force_fp32_for_softmax", "einsum_dot_general", "qk_attn_weights_einsum"),
            **others("attn_weights_value_einsum"),
        }
    ),
    _put,
)
