"""Calls in the sizes, options and numbers that a kernel takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attention_conformance.kernel.placing import float64_of
from attention_conformance.kernel.sizes import is_power_of_four
from generators.attention_call import AttentionCall


def suit_call(kernel: Any, call: AttentionCall) -> AttentionCall:
    """The call in sizes that the kernel takes, with options that its signature can say, and its own scale if it
    has no other."""
    call = kernel.taken.fit(kernel.interface.expressible(call), quartic=kernel.fixed_scale and call.exact)
    if not kernel.fixed_scale or call.scale is None:
        return call
    # The root of a power of four is one of two: exact calls remain so.
    exact = call.exact and is_power_of_four(call.sizes["E"])
    root = math.sqrt(call.sizes["E"]) if exact else 1.0
    return call.replace(query=call.query * root, scale=None, exact=exact)


def in_numbers_of(kernel: Any, call: AttentionCall) -> AttentionCall:
    """The call as the kernel takes it, its tensors rounded to the kernel's numbers, and queries small enough for
    their range."""
    call = suit_call(kernel, call)
    group = call.query.shape[1] // call.key.shape[1]
    keys = np.abs(np.repeat(call.key, group, axis=1))
    room = kernel.numbers.largest / 8
    reach = float(np.max(np.sum(np.abs(call.query), axis=-1)) * np.max(keys))
    if reach > room:  # it is no less than what is due, and quick
        reach = float(np.max(np.abs(call.query) @ np.swapaxes(keys, -1, -2)))
    less = 2.0 ** math.ceil(math.log2(reach / room)) if reach > room else 1.0
    held = {"query": call.query / less, "key": call.key, "value": call.value, "upstream": call.upstream}
    if call.bias is not None:
        held["bias"] = call.bias
    if call.sinks is not None:
        held["sinks"] = call.sinks / less
    if call.slopes is not None:
        held["slopes"] = call.slopes
    if call.lse_upstream is not None:
        held["lse_upstream"] = call.lse_upstream
    return call.replace(**{name: float64_of(kernel.tensor(x)) for name, x in held.items()})
