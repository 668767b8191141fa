"""The adaptation of a call to the sizes, options and numbers that a kernel takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.kernel.memory_layout import float64_of
from attention_conformance.kernel.sizes import is_power_of_four
from theorems.bounded.formats import FORMATS, HALF


def suit_call(kernel: Any, call: AttentionCall) -> AttentionCall:
    """Return the call in sizes that the kernel takes, with options that its signature can express.

    If the kernel has a fixed scale, the call is given that scale.
    """
    if kernel.interface.name != "sdpa":
        call = _with_usual_masks(call)
    if call.scale is not None and call.scale <= 0 and _default_scale_means_own(kernel.parameters):
        call = call.replace(scale=1.0)
    if kernel.dtype not in HALF:  # no kernel takes float32 masks with float64 queries
        call = call.replace(mask_format="")
    call = kernel.taken.fit(kernel.interface.expressible(call), quartic=kernel.fixed_scale and call.exact)
    if not kernel.fixed_scale or call.scale is None:
        return call
    # For a width that is a power of four, 1/√E is a power of two, so that exact calls stay exact.
    exact = call.exact and is_power_of_four(call.sizes["E"])
    root = math.sqrt(call.sizes["E"]) if exact else 1.0
    return call.replace(query=call.query * root, scale=None, exact=exact)


def _default_scale_means_own(parameters: Mapping[str, Any]) -> bool:
    """Return whether the default of the scale is zero or negative, which then stands for the kernel's own scale."""
    defaults = (x for name, x in parameters.items() if "scal" in name and isinstance(x, int | float))
    return any(x <= 0 for x in defaults)


def _with_usual_masks(call: AttentionCall) -> AttentionCall:
    """Return the call with masks in the query's format, with two or four axes, the last of them as long as keys.

    Only PyTorch's own attention promises to broadcast masks of other shapes.
    """

    def usual(mask: Any) -> Any:
        if mask is None or (mask.ndim != 3 and mask.shape[-1] == call.sizes["T"]):
            return mask
        mask = np.broadcast_to(mask, (*mask.shape[:-1], call.sizes["T"])).copy()
        return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)

    return call.replace(visible=usual(call.visible), bias=usual(call.bias), mask_format="")


def in_numbers_of(kernel: Any, call: AttentionCall) -> AttentionCall:
    """Return the call adapted to the kernel, with its tensors rounded to the kernel's number format.

    Queries are scaled down if their products with keys would leave the range of this format.
    """
    call = suit_call(kernel, call)
    group = call.query.shape[1] // call.key.shape[1]
    keys = np.abs(np.repeat(call.key, group, axis=1))
    # Products of an exact call may leave the range before they are multiplied by the scale, but not afterwards.
    less_by = min(1.0, abs(call.scale)) if call.exact and call.scale else 1.0
    room = kernel.numbers.largest / 8 / less_by
    reach = float(np.max(np.sum(np.abs(call.query), axis=-1)) * np.max(keys, initial=0.0))
    if reach > room:  # an upper bound that is quick to compute
        reach = float(np.max(np.abs(call.query) @ np.swapaxes(keys, -1, -2)))
    less = 2.0 ** math.ceil(math.log2(reach / room)) if reach > room else 1.0
    tensors = {"query": call.query / less, "key": call.key, "value": call.value, "upstream": call.upstream}
    if call.bias is not None:
        largest = FORMATS[kernel.dtype].largest
        tensors["bias"] = np.where(np.isneginf(call.bias), -np.inf, np.clip(call.bias, -largest, largest))
    if call.sinks is not None:
        tensors["sinks"] = call.sinks / less
    if call.slopes is not None:
        tensors["slopes"] = call.slopes
    if call.lse_upstream is not None:
        tensors["lse_upstream"] = call.lse_upstream
    return call.replace(**{name: float64_of(kernel.tensor(x)) for name, x in tensors.items()})
