"""Simple calls that confirm how a kernel is called, where neither its parameters' names nor a decorator tell it all.

The calls are small, of standard normal numbers and without options. A name may leave open whether logits are scaled by
1/√E or 1, and whether the kernel is causal in every call.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from attention_conformance.calls.attention_call import Alignment
from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.kernel.kernel import Kernel
from theorems.bounded.formats import FORMATS

SIZES = (
    Sizes(B=2, H=3, G=3, L=4, T=7, E=16, M=16),
    Sizes(B=2, H=3, G=3, L=6, T=6, E=16, M=16),
    Sizes(B=1, H=2, G=2, L=9, T=9, E=8, M=8),
)
NEAR = 0.02
"""The allowed error of an output, as a share of the largest output; half precision needs so much.

Under another convention a right kernel's error is about as large as the largest output.
"""


class Convention(NamedTuple):
    """Scale and causality of a kernel in calls without options.

    Attributes:
        scale: the factor of its logits; None for 1/√E.
        causal: whether it is causal.
        alignment: the position of its causal diagonal, if it is causal.
    """

    scale: float | None
    causal: bool = False
    alignment: Alignment = Alignment.TOP_LEFT


def convention_of(kernel: Kernel) -> Convention | None:
    """Return the convention that the kernel's outputs follow in all simple calls that it takes; None without any."""
    pairs = []
    for seed, sizes in enumerate(SIZES):
        call = kernel.in_own_numbers(tensors(sizes, Numbers.NORMAL, seed).replace(scale=None))
        output = kernel.output(call)
        if output is not None:
            pairs.append((call, output))
    ways = [(False, Alignment.TOP_LEFT)]
    ways += [] if "causal" in kernel.declares else [(True, alignment) for alignment in Alignment]
    for scale, (causal, alignment) in product((None, 1.0), ways):
        apart = []
        for call, output in pairs:
            rows = AttentionRows(call.replace(scale=scale, causal=causal), FORMATS["float64"], alignment)
            due, seen = rows.output.value, ~rows.empty  # a row that sees no key follows no convention here
            apart.append(float(np.max(np.abs(due - output)[seen]) / np.max(np.abs(due))))
        if apart and np.max(apart) < NEAR:  # False for NaN
            return Convention(scale, causal, alignment)
    return None
