"""How tensors lie in memory, and who writes to it."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import laid_out_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim, Form, at_least
from theorems.core.on_kernel import OnKernel
from theorems.core.statement import always
from theorems.core.tolerances import EXACT


@capability(
    "memory",
    "Transposed, sliced and broadcast tensors",
    calls=laid_out_calls,
    claims=always("inputs-are-unchanged") | AGREEMENT,
    says="tensors that are not contiguous give the same numbers; nothing is written to them",
)
def kernel_memory(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Tensors made as (B, L, H, E) and seen as (B, H, L, E), every other row of longer ones, and ones of stride 0
    along the batch are attended to like contiguous ones, and hold what they held afterwards.
    """
    rows = rows_of(call, under_test)
    answer = under_test.attend(rows.call)
    yield at_least("inputs-are-unchanged", Form.EXACT, -float(len(answer.changed)), 0.0, rounding=0.0, why=EXACT)
    yield from agreement(rows, answer)
