"""Causal masking of square calls."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import causal_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "causal",
    "Causal masking, L = T",
    calls=causal_calls,
    claims=AGREEMENT,
    says="each query sees itself and what is before it, forward and backward",
)
def kernel_causal(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Query i of L = T sees the keys t ≤ i: a row is softmax attention on them, and dK_t, dV_t are sums over the
    queries i ≥ t alone.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
