"""Boolean masks."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import boolean_mask_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "boolean-mask",
    "Boolean mask",
    calls=boolean_mask_calls,
    claims=AGREEMENT,
    says="each query sees the keys that the mask shows it",
)
def kernel_boolean_mask(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """A boolean mask, (B, H, L, T) or of a shape that broadcasts to it, hides keys: a row is softmax attention on
    those where it is true.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
