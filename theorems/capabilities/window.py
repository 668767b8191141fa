"""Windows around the diagonal."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import windowed_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "window",
    "Sliding window",
    calls=windowed_calls,
    claims=AGREEMENT,
    says="each query sees so many keys to the left and to the right",
)
def kernel_window(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """With window (l, r) query i of L = T sees the keys i − l ≤ t ≤ i + r; −1 is no limit, and causal masking hides
    t > i as well.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
