"""Additive masks."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import additive_mask_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "additive-mask",
    "Additive mask",
    calls=additive_mask_calls,
    claims=AGREEMENT,
    says="the bias is added to the logits; −∞ hides",
)
def kernel_additive_mask(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """A bias b_t is added to the scaled logits: z_t = scale · q·k_t + b_t; where it is −∞ the key is not seen."""
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
