"""Causal masking with another number of queries than of keys."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import causal_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "causal-rectangle",
    "Causal masking, L < T",
    calls=lambda: causal_calls(square=None),
    claims=AGREEMENT,
    says="the same with fewer queries than keys, aligned at the top left or the bottom right",
)
def kernel_causal_rectangle(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """With L < T query i sees the keys t ≤ i (top-left, as PyTorch's ``is_causal``), or t ≤ i + T − L (bottom-right,
    as flash attention: the last query is the last token). Which of the two a kernel means is found once, at its
    first call; then all calls have to follow it.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
