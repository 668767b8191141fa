"""The factor of the logits."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import scaled_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel


@capability(
    "scale",
    "Factor of the logits",
    calls=scaled_calls,
    claims=AGREEMENT,
    says="output and gradients under scales other than 1",
)
def kernel_scale(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """With scale c the logits are c · q·k_t: the theorem on the prompt c q. Then dQ and dK have the factor c, dV has
    not.
    """
    rows = rows_of(call, under_test)
    yield from agreement(rows, under_test.attend(rows.call))
