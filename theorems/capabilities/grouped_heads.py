"""Heads that share keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import grouped_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "grouped-heads",
    "Grouped heads (GQA)",
    calls=grouped_calls,
    claims=AGREEMENT,
    says="each head attends to the keys of its group; dK and dV are sums over it",
)
def kernel_grouped_heads(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Of H heads and G groups of keys and values head h attends to group h // (H/G). dK and dV of a group are the
    sums over its heads.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
