"""Calls on which nothing is rounded: what coarse numbers can be held to."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import exact_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "exact-weights",
    "Weights of exactly 1, 1/2 and 0",
    calls=exact_calls,
    claims=AGREEMENT,
    says="calls on which nothing is rounded in any precision, to float32's noise",
)
def kernel_exact_weights(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Of each row one key has the largest logit, or two share it, and the others lie 4096 and more below: weights are
    exactly 1, or 1/2 twice, and 0. All numbers of the call are small integers, so every product and partial sum of
    output, dQ, dK and dV is a number of few bits: float16 and bfloat16 have to return what float32 returns, rounded
    once.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
