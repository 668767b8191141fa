"""The interface of flash-attn's ``flash_attn_func``, in all of its generations."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.further import FURTHER, further_arguments, in_8_bits, in_own_dtype
from attention_conformance.interfaces.interface import (
    LSE,
    Interface,
    Option,
    Parameters,
    Request,
    Returned,
    ask_for_lse,
    first_of,
    named_options,
    neutral_option,
    option_of,
    others,
    swap_axes,
)

OPTIONS: dict[str, Option] = {
    "softmax_scale": option_of("scale", "default-scale"),
    "causal": option_of("causal", "causal-rectangle", neutral=False),
    "window_size": option_of("window"),
    "softcap": option_of("softcap"),
    "deterministic": option_of("same-bits"),
    "dropout_p": option_of("dropout", neutral=0.0),
    **FURTHER,
    "attention_chunk": neutral_option(0),
    **dict.fromkeys(LSE, option_of("log-sum-exp")),
    **others("qv", "pack_gqa", "sm_margin"),
    **others("score_mod", "mask_mod", "aux_tensors", "full_block_cnt", "mask_block_cnt", "block_sparse_tensors"),
}
"""The options of all functions of flash-attn; causality and windows are aligned at the bottom right since 2.1."""


def flash_options(request: Request, has: Parameters, options: dict[str, Any]) -> dict[str, Any]:
    """Add the options of a request to the given ones, under flash-attn's names."""
    scale = next((name for name in ("softmax_scale", "scale") if name in has), "")
    causal = "causal" if "causal" in has or "is_causal" not in has else "is_causal"
    options |= named_options(request, scale=scale, causal=causal, softcap="softcap", dropout="dropout_p")
    if request.window is not None:
        # In flash-attn 4 no limit is None, and −1 a number unless both sides are negative.
        none = has.get("window_size") == (None, None)
        options["window_size"] = tuple(None if none and side < 0 else side for side in request.window)
    options |= further_arguments(request, has)
    if request.deterministic and "deterministic" in has:
        options["deterministic"] = True
    ask_for_lse(request, has, options)
    return options


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    tensors = in_8_bits(request, *request.lengths_first)
    output, lse = first_of(kernel(*tensors, **flash_options(request, has, options)))
    return Returned(swap_axes(in_own_dtype(request, output)), lse if request.log_sum_exp else None)


FLASH = Interface(
    "flash",
    "(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, return_lse=False) on (B, L, H, E)",
    tuple(frozenset({name}) for name in ("softmax_scale", "window_size", "causal", *LSE)),
    MappingProxyType(OPTIONS),
    _put,
    found_out=("grouped-heads",),
)
