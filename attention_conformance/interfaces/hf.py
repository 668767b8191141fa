"""The interface of the attention functions of Hugging Face's library transformers.

The functions are the models' eager functions and those that call PyTorch's ``scaled_dot_product_attention``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.interface import (
    Interface,
    Mark,
    Parameters,
    Request,
    Returned,
    first_of,
    neutral_option,
    option_of,
    swap_axes,
    with_mask_or_causal,
)
from attention_conformance.kernel.torch_import import torch

AUX = "s_aux"
"""The parameter for sinks in functions of transformers; eager functions read sinks from their module instead."""


AT_REST = 0.1
"""The module's dropout rate when it is not in training mode, where a correct function drops no weights."""


class Module(torch.nn.Module):
    """The ``module`` that transformers passes to an attention function, with the attributes that such a function reads.

    If the request has no sinks, the module's sinks have logit −∞, and so weight 0. The module is in training mode if
    the request has dropout; otherwise the module's dropout rate has no effect.
    """

    def __init__(self, request: Request) -> None:
        """Set the attributes from the request; switch training mode on if the request has dropout."""
        super().__init__()
        self.num_key_value_groups = request.groups
        self.is_causal = request.causal
        self.layer_idx = 0
        self.head_dim = request.query.shape[-1]
        self.scaling = scaling_of(request)
        none = request.query.new_full((request.query.shape[1],), -math.inf)
        self.sinks = none if request.sinks is None else request.sinks
        self.sliding_window = None
        self.attn_logit_softcapping = request.softcap or None
        self.attention_dropout = request.dropout or AT_REST
        self.config = SimpleNamespace(_attn_implementation="eager", sliding_window=None)
        self.train(request.dropout > 0)


def scaling_of(request: Request) -> float:
    """Return the request's scale, or, if the request has none, 1/√E for queries of E columns, as models do."""
    return request.scale if request.scale is not None else 1 / math.sqrt(request.query.shape[-1])


def _put(kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]) -> Returned:
    if "**" in has:
        options["dropout"] = 0.0
    if request.dropout:
        options["dropout"] = request.dropout
    # A function whose default scale is None may get None, and then uses its own scale.
    options["scaling"] = request.scale if has.get("scaling", Mark.REQUIRED) is None else scaling_of(request)
    if request.softcap:
        options["softcap"] = request.softcap
    if request.sinks is not None and (AUX in has or "**" in has):
        options[AUX] = request.sinks
    if request.window is not None:
        # The parameter counts the keys to the left and the query's own key.
        options["sliding_window"] = request.window[0] + 1
    bias = request.mask
    if request.visible is not None and not request.boolean:
        hidden = torch.tensor(torch.finfo(request.query.dtype).min, dtype=request.query.dtype)
        bias = torch.where(request.mask, torch.zeros((), dtype=request.query.dtype), hidden.to(request.query))  # type: ignore[arg-type]
    output, weights = first_of(kernel(Module(request), request.query, request.key, request.value, bias, **options))
    is_square = isinstance(weights, torch.Tensor) and weights.dim() == 4
    return Returned(swap_axes(output), weights=weights if is_square else None)


def _expressible(call: AttentionCall) -> AttentionCall:
    """Return the nearest call that the signature can express.

    If the call has a mask, causality and window are removed. Otherwise a window with a limit to the left becomes causal
    and ends at the diagonal; a window without such a limit is removed.
    """
    call = with_mask_or_causal(call)
    if call.window is None:
        return call
    left = call.window[0]
    is_in_a_mask = call.visible is not None or call.bias is not None
    return call.replace(window=None) if is_in_a_mask or left < 0 else call.replace(window=(left, 0), causal=True)


HF = Interface(
    "hf",
    "(module, query, key, value, attention_mask, scaling=None, …) → (out (B, L, H, E), weights)",
    (frozenset({"module", "attention_mask"}), frozenset({"attention_mask", "scaling"}), frozenset({"scaling"})),
    MappingProxyType(
        {
            "attention_mask": option_of("boolean-mask", "additive-mask"),
            "scaling": option_of("scale"),
            # In transformers a single query is the last of its sequence and sees all keys, so the capability of causal
            # calls with unequal numbers of queries and keys is not declared.
            "is_causal": option_of("causal"),
            "module": option_of("grouped-heads"),
            "softcap": option_of("softcap"),
            "dropout": option_of("dropout", neutral=0.0),
            "sliding_window": option_of("window", neutral=None),
            AUX: option_of("sinks", neutral=None),
            "head_mask": neutral_option(None),
            "position_ids": neutral_option(None),
        }
    ),
    _put,
    by_place=4,
    # With a cache of a fixed length, the mask has as many columns as the cache, more than there are keys.
    found_out=("longer-masks",),
    of_effect=("sinks",),
    expressible=_expressible,
)
