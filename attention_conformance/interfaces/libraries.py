"""The interfaces of libraries that take tensors in one piece: one function each, with its names for our options."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.further import FURTHER, further_arguments
from attention_conformance.interfaces.interface import (
    GIVEN,
    LSE,
    Interface,
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
from attention_conformance.interfaces.masks import with_mask_or_causal
from attention_conformance.kernel.with_torch import torch


def _put_plain(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    options |= named_options(request, scale="scale" if "scale" in has else "")
    return Returned(kernel(request.query, request.key, request.value, **options))


PLAIN = Interface(
    "plain",
    "(query (…, L, d), keys (…, T, d), values (…, T, m)) → (…, L, m)",
    (),
    MappingProxyType({"scale": option_of("scale")}),
    _put_plain,
)
"""A function of three tensors, and perhaps of a scale."""


def _put_sdpa(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    names = {"mask": "attn_mask", "causal": "is_causal", "groups": "enable_gqa", "softcap": "softcap"}
    options |= named_options(request, scale="scale" if "scale" in has else "", dropout="dropout_p", **names)
    options |= further_arguments(request, has)
    ask_for_lse(request, has, options)
    output, lse = first_of(kernel(request.query, request.key, request.value, **options))
    return Returned(output, lse if request.log_sum_exp else None)


SDPA = Interface(
    "sdpa",
    "(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False) on (B, H, L, E)",
    (frozenset({"attn_mask"}), frozenset({"is_causal"}), frozenset({"enable_gqa"})),
    MappingProxyType(
        {
            "attn_mask": option_of("boolean-mask", "additive-mask"),
            "is_causal": option_of("causal", "causal-rectangle", neutral=False),
            "scale": option_of("scale", "default-scale"),
            "enable_gqa": option_of("grouped-heads"),
            "softcap": option_of("softcap"),
            **FURTHER,
            "dropout_p": option_of("dropout", neutral=0.0),
            **dict.fromkeys(LSE, option_of("log-sum-exp")),
            **others("score_mod", "block_mask", "kernel_options", "return_aux"),
        }
    ),
    _put_sdpa,
)
"""PyTorch's ``scaled_dot_product_attention``; paddle, tinygrad, flex_attention have similar ones."""


def _put_keras(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    names = {"visible": "mask", "bias": "bias", "causal": "is_causal", "softcap": "attn_logits_soft_cap"}
    options |= named_options(request, scale="scale", **names)
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
    _put_keras,
    found_out=("grouped-heads",),
)
"""``keras.ops.dot_product_attention``, on arrays of its backend."""


def _put_jax(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    options["scale"] = request.scale
    options |= named_options(request, visible="mask", bias="bias", causal="is_causal", log_sum_exp="return_residual")
    if request.window is not None:
        # Of −1 it means one key less than none, where others mean no limit.
        longest = request.query.shape[2] + request.key.shape[2]
        options["local_window_size"] = tuple(longest if side < 0 else side for side in request.window)
    output, lse = first_of(kernel(*request.lengths_first, **options))
    return Returned(swap_axes(output), lse.transpose(1, 2) if isinstance(lse, torch.Tensor) and lse.dim() == 3 else lse)


JAX = Interface(
    "jax",
    "(query, key, value, bias, mask, *, scale, is_causal, local_window_size, return_residual) on (B, L, H, E)",
    (
        frozenset({"local_window_size"}),
        frozenset({"query_seq_lengths"}),
        frozenset({"bias", "mask", "is_causal", "implementation"}),
    ),
    MappingProxyType(
        {
            "bias": option_of("additive-mask"),
            "mask": option_of("boolean-mask"),
            "scale": option_of("scale", "default-scale"),
            "is_causal": option_of("causal", "causal-rectangle", neutral=False),
            "local_window_size": option_of("window"),
            "return_residual": option_of("log-sum-exp"),
            **others("query_seq_lengths", "key_value_seq_lengths", "implementation"),
        }
    ),
    _put_jax,
    found_out=("grouped-heads",),
)
"""``jax.nn.dot_product_attention``."""


def _put_flax(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    options |= named_options(request, visible="mask", bias="bias", causal="is_causal")
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
    _put_flax,
)
"""flax's ``dot_product_attention``: its scale is always 1/√E, and ``deterministic`` switches dropout off."""


def _put_equinox(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    """Attend to one head of one sequence at a time."""
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
    _put_equinox,
)
"""equinox's ``dot_product_attention``: one head of one sequence; its scale is always 1/√E."""


def _put_triton(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
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
    _put_triton,
)
"""Triton's tutorial kernel: causality and the scale are always given."""


def _put_onnxruntime(
    kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> Returned:
    options |= named_options(request, scale="scale", any_mask="attn_mask", softcap="softcap")
    options |= {"is_causal": 1} if request.causal else {}
    return Returned(first_of(kernel(request.query, request.key, request.value, **options))[0])


ONNXRUNTIME = Interface(
    "onnxruntime",
    "(Q, K, V, attn_mask=None, past_key=None, past_value=None, *, is_causal=0, scale=None, softcap=0.0, …)"
    " on (B, H, L, E) → (Y, …)",
    (frozenset({"past_key", "past_value"}), frozenset({"qk_matmul_output_mode"})),
    MappingProxyType(
        {
            "attn_mask": option_of("boolean-mask", "additive-mask"),
            "is_causal": option_of("causal", "causal-rectangle"),
            "scale": option_of("scale", "default-scale"),
            "softcap": option_of("softcap"),
            "past_key": neutral_option(None),
            "past_value": neutral_option(None),
            **others("q_num_heads", "kv_num_heads", "qk_matmul_output_mode", "softmax_precision"),
            **others("nonpad_kv_seqlen"),
        }
    ),
    _put_onnxruntime,
    found_out=("grouped-heads",),
)
"""The ONNX operator Attention, as its reference and onnxruntime evaluate it: flags are numbers."""


def _put_xformers(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    options |= named_options(request, scale="scale" if "scale" in has else "")
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
    _put_xformers,
)
"""xformers' ``memory_efficient_attention``: a bias in exactly the logits' shape.

Causality and boolean masks are objects of its own there; they are not tested.
"""


def _put_mlx(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
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
    _put_mlx,
    found_out=("grouped-heads", "causal"),
    expressible=with_mask_or_causal,
)
"""MLX's ``mx.fast.scaled_dot_product_attention``: one parameter is a mask, a bias, or the word "causal"."""
