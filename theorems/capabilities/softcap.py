"""Capped logits."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import softcapped_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "softcap",
    "Capped logits (softcap)",
    calls=softcapped_calls,
    claims=AGREEMENT,
    says="the weights are the softmax of the capped logits",
)
def kernel_softcap(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """With softcap c > 0 the logits are z_t = c tanh(scale · q·k_t / c), and dz is multiplied by 1 − tanh² on its
    way to dQ and dK.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
