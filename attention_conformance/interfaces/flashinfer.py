"""The interface of flashinfer's ``single_prefill_with_kv_cache`` and ``single_decode_with_kv_cache``.

Both functions take one sequence at a time, so each batch entry is a separate call. The log-sum-exp is the logarithm to
base 2, as flashinfer documents; all heads share a mask, and windows extend only to the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.interface import (
    UNTESTED,
    Interface,
    Option,
    Parameters,
    Request,
    Returned,
    first_of,
    neutral_option,
    option_of,
    with_one_mask,
)
from attention_conformance.interfaces.libraries import names_in
from attention_conformance.interfaces.parameter_names import arguments, usual
from attention_conformance.kernel.torch_import import torch

OPTIONS: Mapping[str, Option] = MappingProxyType(
    usual("causal sm_scale logits_soft_cap scale_q scale_k scale_v q_scale k_scale v_scale o_dtype packed_custom_mask")
    | usual("use_fp16_qk_reduction use_tensor_cores rope_scale rope_theta backend")
    | {
        "sinks": UNTESTED,
        "custom_mask": option_of("boolean-mask"),
        "window_left": option_of("window", neutral=-1),
        "return_lse": option_of("log-sum-exp", neutral=False),
        "kv_layout": neutral_option("NHD"),
        "pos_encoding_mode": neutral_option("NONE"),
    }
)


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    options |= arguments(names_in(OPTIONS, has), request, has)
    if request.window is not None:
        left, right = request.window
        options["window_left"] = left
        # Without a parameter for causality there is a single query, the last of its sequence: no keys come after it.
        options |= {"causal": True} if right == 0 and "causal" in has else {}
    B, L, T = len(request.query), request.query.shape[2], request.key.shape[2]
    each: list[tuple[Any, Any]] = []
    for entry, tensors in enumerate(zip(*request.lengths_first, strict=True)):
        if request.mask is not None:
            options["custom_mask"] = request.mask.expand(B, -1, L, T)[entry, 0]
        # The function for decoding takes a single query, without an axis of queries.
        single = "causal" not in has
        query = tensors[0][0] if single and L == 1 else tensors[0]
        output, lse = first_of(kernel(query, *tensors[1:], **options))
        each.append((output[None], lse[None] if lse is not None else None) if single and L == 1 else (output, lse))
    output = torch.stack([out for out, _ in each]).transpose(1, 2)
    if not request.log_sum_exp:
        return Returned(output)
    return Returned(output, torch.stack([lse for _, lse in each]).transpose(1, 2) * math.log(2))


def _expressible(call: AttentionCall) -> AttentionCall:
    if call.window is not None and call.window[1] > 0:
        call = call.replace(window=(call.window[0], 0))
    return with_one_mask(call)


FLASHINFER = Interface(
    "flashinfer",
    "(q, k, v, custom_mask=None, causal=False, kv_layout='NHD', sm_scale=None, window_left=-1, logits_soft_cap=None,"
    " return_lse=False) on (L, H, E)",
    (frozenset({"kv_layout"}), frozenset({"window_left"}), frozenset({"sm_scale", "logits_soft_cap"})),
    OPTIONS,
    _put,
    found_out=("grouped-heads",),
    expressible=_expressible,
)
