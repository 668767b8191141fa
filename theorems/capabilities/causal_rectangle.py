"""Causal masking with another number of queries than of keys."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import causal_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.capabilities.empty_rows import EMPTY, convention
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "causal-rectangle",
    "Causal masking, L ≠ T",
    calls=lambda: causal_calls(square=None),
    claims=AGREEMENT | {EMPTY: "with L > T, aligned at the bottom right"},
    says="the same with fewer or more queries than keys, aligned at the top left or the bottom right",
)
def kernel_causal_rectangle(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """With L ≠ T query i sees the keys t ≤ i (top-left, as PyTorch's ``is_causal``), or t ≤ i + T − L (bottom-right,
    as flash attention: the last query is the last token). Which of the two a kernel means is found once, at its
    first call; then all calls have to follow it. With L > T, aligned at the bottom right, the first L − T queries see
    nothing, and follow one convention.
    """
    rows = rows_of(call, under_test)
    answer = under_test.attend(rows.call)
    yield from convention(rows, answer) if rows.empty.any() else agreement(rows, answer)
