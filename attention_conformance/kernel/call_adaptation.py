"""The adaptation of a call to the sizes, options and number format that a kernel takes."""

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

    If the kernel always scales logits by 1/√E, for queries of E columns, the adapted call has that scale, too.
    """
    if kernel.interface.name != "sdpa":
        call = _with_usual_masks(call)
    if call.scale is not None and call.scale <= 0 and _default_scale_means_own(kernel.parameters):
        call = call.replace(scale=1.0)
    if kernel.dtype not in HALF:  # kernels take masks in another format only with half-precision queries
        call = call.replace(mask_format="")
    call = kernel.taken.fit(kernel.interface.expressible(call), quartic=kernel.fixed_scale and call.exact)
    own_scale = 1.0 if kernel.reading is None else kernel.reading.own_scale
    if own_scale != 1 and call.scale is not None:
        call = call.replace(scale=own_scale, exact=False)
    if not kernel.fixed_scale or call.scale is None:
        return call
    # If E is a power of four, 1/√E is a power of two: a call that kernels compute without rounding remains one.
    exact = call.exact and is_power_of_four(call.sizes["E"])
    root = math.sqrt(call.sizes["E"]) if exact else 1.0
    return call.replace(query=call.query * root, scale=None, exact=exact)


def _default_scale_means_own(parameters: Mapping[str, Any]) -> bool:
    """Return whether the scale's default is zero or negative: such a kernel takes this value to mean its own scale."""
    defaults = (x for name, x in parameters.items() if "scal" in name and isinstance(x, int | float))
    return any(x <= 0 for x in defaults)


def _with_usual_masks(call: AttentionCall) -> AttentionCall:
    """Return the call with masks in the query's format that have two or four axes and a column for each key.

    Only PyTorch's own attention promises to broadcast masks of other shapes.
    """

    def usual(mask: Any) -> Any:
        if mask is None or (mask.ndim != 3 and mask.shape[-1] == call.sizes["T"]):
            return mask
        mask = np.broadcast_to(mask, (*mask.shape[:-1], call.sizes["T"])).copy()
        return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)

    return call.replace(visible=usual(call.visible), bias=usual(call.bias), mask_format="")


def in_numbers_of(kernel: Any, call: AttentionCall) -> AttentionCall:
    """Return the call adapted to the kernel, with all tensors rounded to the kernel's number format.

    Queries are scaled down by a power of two if products of queries and keys would leave the range of the format.
    """
    call = suit_call(kernel, call)
    group = call.query.shape[1] // call.key.shape[1]
    keys = np.abs(np.repeat(call.key, group, axis=1))
    # In a call that kernels compute without rounding, only the scaled products have to stay within the range.
    less_by = min(1.0, abs(call.scale)) if call.exact and call.scale else 1.0
    room = kernel.numbers.largest / 8 / less_by
    reach = float(np.max(np.sum(np.abs(call.query), axis=-1)) * np.max(keys, initial=0.0))
    if reach > room:  # reach is a quick upper bound; as it is too large, compute the largest product itself
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
