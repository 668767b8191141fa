"""The interfaces of libraries whose functions take padded tensors: parameter names and special arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.inferred_interface import put
from attention_conformance.interfaces.interface import (
    GIVEN,
    UNTESTED,
    Interface,
    Option,
    Parameters,
    Request,
    Returned,
    first_of,
    neutral_option,
    option_of,
    with_mask_or_causal,
    with_one_mask,
)
from attention_conformance.interfaces.parameter_names import FURTHER, LSE, MEANINGS, roles_of, usual
from attention_conformance.interfaces.signature_reading import ADDED, FOUR_AXES, SHOWS, Mask, Reading
from attention_conformance.kernel.torch_import import torch

Own = Callable[[Request, dict[str, Any]], Request]
"""A function (request, arguments) that adds a library's own arguments; it returns the request still to be passed."""


def library(
    name: str,
    signature: str,
    known_by: tuple[str, ...],
    options: dict[str, Option],
    reading: Reading,
    own: Own = lambda request, given: request,
    **further: Any,
) -> Interface:
    """Return the interface of a library's attention function.

    Args:
        name: the name for ``--interface``.
        signature: the signature as reports print it.
        known_by: strings of parameter names, separated by spaces; a kernel with all names of one string has this
            interface.
        options: the purpose of each parameter by name.
        reading: the order of the tensors' axes, the masks, and the names of options that are not in :data:`.ROLES`.
        own: a function that adds the library's special arguments.
        further: further attributes of :class:`.interface.Interface`.
    """
    reading = replace(reading, log_sum_exp=(1,))

    def put_request(kernel: Callable[..., Any], request: Request, has: Parameters, given: dict[str, Any]) -> Returned:
        names = names_in(options, has) | {**reading.names}
        return put(replace(reading, names=names), kernel, own(request, given), has, given)

    sets = tuple(frozenset(names.split()) for names in known_by)
    return Interface(name, signature, sets, MappingProxyType(options), put_request, **further)


def names_in(options: Mapping[str, Option], has: Parameters) -> dict[str, str]:
    """Return, for each role such as "causal" or "scale", the name of the kernel's tested parameter in that role."""
    tested = roles_of([name for name in has if options.get(name, UNTESTED).declares])
    return {role: tested[role][0] for role in MEANINGS if tested[role]}


PLAIN = library(
    "plain",
    "(query (…, L, d), keys (…, T, d), values (…, T, m)) → (…, L, m)",
    (),
    {"scale": option_of("scale")},
    Reading(),
)
"""The interface of a function of three tensors, and possibly a scale."""

SDPA = library(
    "sdpa",
    "(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False) on (B, H, L, E)",
    ("attn_mask", "is_causal", "enable_gqa"),
    usual("is_causal scale enable_gqa softcap dropout_p score_mod block_mask kernel_options return_aux")
    | usual(" ".join(LSE))
    | {"attn_mask": option_of("boolean-mask", "additive-mask"), **FURTHER},
    Reading(mask=Mask("attn_mask", SHOWS), bias=Mask("attn_mask", ADDED)),
)
"""The interface of PyTorch's ``scaled_dot_product_attention``, which also fits functions of paddle and tinygrad."""

MASK_AND_BIAS = Reading(
    axes="BLHE", returned_axes="BLHE", mask=Mask("mask", SHOWS, FOUR_AXES), bias=Mask("bias", ADDED, FOUR_AXES)
)
BOTH = {"mask": option_of("boolean-mask"), "bias": option_of("additive-mask")}
KERAS = library(
    "keras",
    "(query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None,"
    " attn_logits_soft_cap=None) on (B, L, H, E)",
    ("flash_attention bias", "attn_logits_soft_cap"),
    usual("scale is_causal attn_logits_soft_cap flash_attention") | BOTH,
    MASK_AND_BIAS,
    found_out=("grouped-heads",),
)
"""The interface of ``keras.ops.dot_product_attention``, on arrays of keras's backend."""


def _window_of_jax(request: Request, given: dict[str, Any]) -> Request:
    if request.window is None:
        return request
    # In jax a window's side of −1 is a number of keys (one less than 0); in other libraries it means no limit.
    longest = request.query.shape[2] + request.key.shape[2]
    left, right = (longest if side < 0 else side for side in request.window)
    return replace(request, window=(left, right))


JAX = library(
    "jax",
    "(query, key, value, bias, mask, *, scale, is_causal, local_window_size, return_residual) on (B, L, H, E)",
    ("local_window_size", "query_seq_lengths", "bias mask is_causal implementation"),
    usual("scale is_causal query_seq_lengths key_value_seq_lengths implementation")
    | BOTH
    | {"local_window_size": MEANINGS["window"], "return_residual": MEANINGS["lse"]},
    replace(MASK_AND_BIAS, names={"window": "local_window_size", "lse": "return_residual"}, lse_axes="BLH"),
    _window_of_jax,
    found_out=("grouped-heads",),
)
"""The interface of ``jax.nn.dot_product_attention``."""

FLAX = library(
    "flax",
    "(query, key, value, bias=None, mask=None, broadcast_dropout=True, dropout_rng=None, dropout_rate=0.0,"
    " deterministic=False, …) on (B, L, H, E)",
    ("dropout_rng", "broadcast_dropout"),
    usual("is_causal broadcast_dropout dropout_rng dtype precision module promote_dtype force_fp32_for_softmax")
    | usual("einsum_dot_general qk_attn_weights_einsum attn_weights_value_einsum")
    | BOTH
    | {"dropout_rate": neutral_option(0.0), "deterministic": neutral_option(True)},
    MASK_AND_BIAS,
)
"""The interface of flax's ``dot_product_attention``, whose scale is always 1/√E for queries of E columns."""

TRITON = library(
    "triton",
    "(q, k, v, causal, sm_scale, warp_specialize=True) on (B, H, L, E)",
    ("causal sm_scale",),
    usual("causal warp_specialize") | {"sm_scale": option_of("scale")},
    Reading(),
)
"""The interface of the kernel in Triton's tutorial, where causality and scale have no defaults."""

ONNXRUNTIME = library(
    "onnxruntime",
    "(Q, K, V, attn_mask=None, past_key=None, past_value=None, *, is_causal=0, scale=None, softcap=0.0, …)"
    " on (B, H, L, E) → (Y, …)",
    ("past_key past_value", "qk_matmul_output_mode"),
    usual("is_causal scale softcap q_num_heads kv_num_heads qk_matmul_output_mode softmax_precision nonpad_kv_seqlen")
    | {"attn_mask": option_of("boolean-mask", "additive-mask")}
    | dict.fromkeys(("past_key", "past_value"), neutral_option(None)),
    Reading(mask=Mask("attn_mask", SHOWS, FOUR_AXES), bias=Mask("attn_mask", ADDED, FOUR_AXES)),
    found_out=("grouped-heads",),
)
"""The interface of the ONNX operator Attention, evaluated by ONNX's reference or by onnxruntime; flags are 0 or 1."""

XFORMERS = library(
    "xformers",
    "(query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None) on (B, L, H, E)",
    ("attn_bias",),
    usual("scale op output_dtype") | {"attn_bias": option_of("additive-mask"), "p": neutral_option(0.0)},
    Reading(axes="BLHE", returned_axes="BLHE", bias=Mask("attn_bias", ADDED, "B, H, L, T")),
)
"""The interface of xformers' ``memory_efficient_attention``, which takes a bias in exactly the logits' shape.

Causality and boolean masks are objects of xformers' own types; they are not tested.
"""


def _word_for_causal(request: Request, given: dict[str, Any]) -> Request:
    given |= {"mask": "causal"} if request.causal else {}
    return request


MLX = library(
    "mlx",
    "(q, k, v, *, scale, mask=None or an array or 'causal', sinks=None, stream=None) on (B, H, L, E)",
    ("q mask scale", "queries mask scale"),
    usual("sinks stream")
    | {"scale": option_of("scale"), "mask": option_of("boolean-mask", "additive-mask", "causal-rectangle")},
    Reading(mask=Mask("mask", SHOWS, FOUR_AXES), bias=Mask("mask", ADDED, FOUR_AXES)),
    _word_for_causal,
    found_out=("grouped-heads", "causal"),
    expressible=with_mask_or_causal,
)
"""The interface of MLX's ``mx.fast.scaled_dot_product_attention``: ``mask`` takes a mask, a bias or "causal"."""


def _kind_of_mask(request: Request, given: dict[str, Any]) -> Request:
    # Transformer Engine's functions are causal by default, so that the mask's type is always passed.
    given["attn_mask_type"] = "causal" if request.causal else "no_mask"
    if request.bias is not None:
        given["core_attention_bias_type"] = "post_scale_bias"
    if request.visible is None or request.mask is None:
        return request
    shape = (len(request.query), 1, request.query.shape[2], request.key.shape[2])
    given |= {"attn_mask_type": "arbitrary", "attention_mask": ~request.mask[:, :1].expand(shape)}
    return replace(request, visible=None)


TRANSFORMER_ENGINE = library(
    "transformer-engine",
    "(query_layer, key_layer, value_layer, attention_mask=None, qkv_format='bshd', attn_mask_type='causal',"
    " window_size=None, core_attention_bias_type='no_bias', core_attention_bias=None) on (B, L, H, E) → (B, L, H·M)",
    ("query_layer", "core_attention_bias"),
    usual("window_size cu_seqlens_q cu_seqlens_kv cu_seqlens_q_padded cu_seqlens_kv_padded max_seqlen_q max_seqlen_kv")
    | usual("fast_zero_fill inference_params pad_between_seqs fp8_output num_splits")
    | {
        "num_splits": UNTESTED,
        "attn_mask_type": option_of("causal", "causal-rectangle"),
        "attention_mask": option_of("boolean-mask"),
        "core_attention_bias": option_of("additive-mask"),
        "core_attention_bias_type": neutral_option("no_bias"),
        "qkv_format": neutral_option("bshd"),
        "alibi_slopes": neutral_option(None),
        "checkpoint_core_attention": neutral_option(False),
    },
    Reading(axes="BLHE", returned_axes="BLHE", bias=Mask("core_attention_bias", ADDED, FOUR_AXES)),
    _kind_of_mask,
    found_out=("grouped-heads",),
    expressible=lambda call: with_mask_or_causal(with_one_mask(call)),
)
"""The interface of Transformer Engine's ``DotProductAttention``: the output joins the heads, which share a mask.

The scale is an argument of the constructor; small calls show its value.
"""


def _put_equinox(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    """Call the kernel on one head of one batch entry at a time."""
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
        {"key_": GIVEN, "mask": option_of("boolean-mask"), "inference": neutral_option(True)}
        | dict.fromkeys(("key", "dropout"), UNTESTED)
    ),
    _put_equinox,
)
"""The interface of equinox's ``dot_product_attention``, on one head of one sequence, with the scale 1/√E always."""
