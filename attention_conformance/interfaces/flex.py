"""The interface of PyTorch's ``flex_attention``: functions of query and key positions modify scores and hide keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import (
    Interface,
    Option,
    Parameters,
    Request,
    Returned,
    first_of,
    option_of,
)
from attention_conformance.interfaces.libraries import names_in
from attention_conformance.interfaces.parameter_names import LSE, arguments, usual
from attention_conformance.kernel.torch_import import torch

Mod = Callable[..., Any]


def score_mod_of(request: Request) -> Mod | None:
    """Return the function (score, batch entry, head, query, key) → changed score; None if no score is to change."""
    B, H, L, _ = request.query.shape
    affine, slopes = (None if x is None else _wide(x) for x in (request.score_mod, request.slopes))
    bias, cap = None, request.softcap
    if request.bias is not None and request.mask is not None:
        bias = request.mask.expand(B, H, L, request.key.shape[2])
    if affine is None and bias is None and slopes is None and not cap:
        return None

    def mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if affine is not None:
            score = score * affine[h, 0] + affine[h, 1] * (j - i) + affine[h, 2]
        if cap:
            score = cap * torch.tanh(score / cap)
        if bias is not None:
            score = score + bias[b, h, i, j]
        return score if slopes is None else score - slopes[b, h] * (j - i).abs()

    return mod


def _wide(x: Any) -> Any:
    """Return a tensor in float32 or float64: a half-precision format would round positions above 2048."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def mask_mod_of(request: Request) -> Mod | None:
    """Return the function (batch entry, head, query, key) → whether the query sees the key; None if it always does."""
    B, H, L, _ = request.query.shape
    half_plane, window, visible = request.mask_mod, request.window, None
    if request.visible is not None and request.mask is not None:
        visible = request.mask.expand(B, H, L, request.key.shape[2])
    if half_plane is None and window is None and visible is None and not request.causal:
        return None

    def mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        visible_key = i >= j if request.causal else (i >= 0) & (j >= 0)
        if window is not None:
            left, right = window
            visible_key = visible_key if left < 0 else visible_key & (j >= i - left)
            visible_key = visible_key if right < 0 else visible_key & (j <= i + right)
        if half_plane is not None:
            visible_key = visible_key & (half_plane[b, h, 0] * j + half_plane[b, h, 1] * i <= half_plane[b, h, 2])
        return visible_key if visible is None else visible_key & visible[b, h, i, j]

    return mod


def _block_mask(mod: Mod, request: Request) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask  # half a second

    B, H, L, _ = request.query.shape
    return create_block_mask(mod, B, H, L, request.key.shape[2], device=request.query.device)


def _auxiliary() -> Any:
    from torch.nn.attention.flex_attention import AuxRequest

    return AuxRequest(lse=True)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    asks = request.log_sum_exp and "return_aux" not in has
    options |= arguments(names_in(OPTIONS, has), replace(request, slopes=None, log_sum_exp=asks), has)
    options["score_mod"] = score_mod_of(request)
    mask = mask_mod_of(request)
    if mask is not None and "mask_mod" in has:
        options["mask_mod"] = mask
    elif mask is not None:
        options["block_mask"] = _block_mask(mask, request)
    if request.log_sum_exp and "return_aux" in has:
        options["return_aux"] = _auxiliary()
    output, lse = first_of(kernel(request.query, request.key, request.value, **options))
    return Returned(output, getattr(lse, "lse", lse) if request.log_sum_exp else None)


HIDE = option_of("mask-mod", "boolean-mask", "causal", "causal-rectangle", "window")
OPTIONS: Mapping[str, Option] = MappingProxyType(
    usual("scale enable_gqa kernel_options")
    | usual(" ".join(LSE))
    | {
        "score_mod": option_of("score-mod", "additive-mask", "softcap", "alibi"),
        "block_mask": HIDE,
        "mask_mod": HIDE,
        "return_aux": option_of("log-sum-exp"),
    }
)
FLEX = Interface(
    "flex",
    "(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False)"
    " on (B, H, L, E)",
    (frozenset({"score_mod", "block_mask"}), frozenset({"query", "score_mod", "mask_mod"})),
    OPTIONS,
    _put,
)
