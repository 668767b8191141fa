"""The interface of ``jax.nn.dot_product_attention``."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import (
    Interface,
    Parameters,
    Request,
    Returned,
    first_of,
    option_of,
    others,
    swap_axes,
)
from attention_conformance.kernel.with_torch import torch


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    options["scale"] = request.scale
    if request.mask is not None:
        options["mask" if request.visible is not None else "bias"] = request.mask
    if request.causal:
        options["is_causal"] = True
    if request.window is not None:
        # Of −1 it means one key less than none, where others mean no limit.
        longest = request.query.shape[2] + request.key.shape[2]
        options["local_window_size"] = tuple(longest if side < 0 else side for side in request.window)
    if request.log_sum_exp:
        options["return_residual"] = True
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
    _put,
    found_out=("grouped-heads",),
)
