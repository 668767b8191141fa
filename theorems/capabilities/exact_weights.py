"""Calls on which nothing is rounded: what coarse numbers can be held to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from generators.attention_call import AttentionCall
from generators.attention_calls import exact_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel
from theorems.rounding.bounded.formats import FORMATS, HALF


@capability(
    "exact-weights",
    "Weights of exactly 2⁻ʲ and 0",
    calls=exact_calls,
    claims=AGREEMENT,
    says="calls on which nothing is rounded in any precision, to float32's noise",
)
def kernel_exact_weights(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """In each row one, two or four keys share the largest logit and the others lie 4096 below: their weights are
    exactly 1, 1/2 or 1/4, and 0. All numbers of the call are small integers, so every product and every partial
    sum of output, dQ, dK and dV has at most eight bits: float16 and bfloat16 have to return what float32 returns.
    What is allowed is float32's rounding of the formula, for kernels that take weights again from a stored log-
    sum-exp.
    """
    rows = rows_of(call, under_test)
    if rows.numbers.name in HALF:
        rows = replace(rows, numbers=FORMATS["float32"])
    yield from agreement(rows, under_test.attend(rows.call))
