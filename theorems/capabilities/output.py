"""The output of a kernel."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import plain_calls
from theorems.capabilities.agreement import OUTPUT, rows_of, same
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel
from theorems.core.statement import always


@capability(
    "output",
    "Softmax attention of every row",
    calls=plain_calls,
    claims=always(OUTPUT),
    says="its output, with several queries, heads and batch entries, lengths around those of blocks",
)
def kernel_output(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Each row of the output is Σ_t s_t v_t with s = softmax(q·k_1, …, q·k_T), up to the rounding of that formula in
    the kernel's numbers: whatever the number of queries, keys, heads and batch entries, however large the logits.
    """
    rows = rows_of(call, under_test)
    yield same(OUTPUT, under_test.attend(rows.call).output, rows.output)
