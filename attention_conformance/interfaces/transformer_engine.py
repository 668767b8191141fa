"""The interface of Transformer Engine's ``DotProductAttention``.

Heads are joined in its output, and a mask is true where keys are hidden. The scale is an argument of its constructor:
the scale that it has is found out. A mask is shared by all heads.
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
from attention_conformance.interfaces.masks import with_mask_or_causal, with_one_mask
from attention_conformance.kernel.with_torch import torch


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    # Without a type it takes a causal mask.
    options["attn_mask_type"] = "causal" if request.causal else "no_mask"
    if request.visible is not None and request.mask is not None:
        shape = (len(request.query), 1, request.query.shape[2], request.key.shape[2])
        options |= {"attn_mask_type": "arbitrary", "attention_mask": ~request.mask[:, :1].expand(shape)}
    if request.bias is not None:
        options |= {"core_attention_bias_type": "post_scale_bias", "core_attention_bias": request.mask}
    if request.window is not None:
        options["window_size"] = request.window
    output = kernel(*request.lengths_first, **options)
    if isinstance(output, torch.Tensor) and output.dim() == 3:
        output = output.reshape(*output.shape[:2], request.query.shape[1], -1)
    return Returned(swap_axes(output))


TRANSFORMER_ENGINE = Interface(
    "transformer-engine",
    "(query_layer, key_layer, value_layer, attention_mask=None, qkv_format='bshd', attn_mask_type='causal',"
    " window_size=None, core_attention_bias_type='no_bias', core_attention_bias=None) on (B, L, H, E) → (B, L, H·M)",
    (frozenset({"query_layer"}), frozenset({"core_attention_bias"})),
    MappingProxyType(
        {
            "attn_mask_type": option_of("causal", "causal-rectangle"),
            "attention_mask": option_of("boolean-mask"),
            "core_attention_bias": option_of("additive-mask"),
            "core_attention_bias_type": neutral_option("no_bias"),
            "window_size": option_of("window"),
            "qkv_format": neutral_option("bshd"),
            "alibi_slopes": neutral_option(None),
            "checkpoint_core_attention": neutral_option(False),
            **others("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded", "max_seqlen_q"),
            **others("max_seqlen_kv", "fast_zero_fill", "inference_params", "pad_between_seqs", "fp8_output"),
            **others("num_splits"),
        }
    ),
    _put,
    found_out=("grouped-heads",),
    expressible=lambda call: with_mask_or_causal(with_one_mask(call)),
)
