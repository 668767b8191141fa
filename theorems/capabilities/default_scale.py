"""The scale that a kernel takes by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from generators.attention_call import AttentionCall
from generators.attention_calls import default_scale_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of
from theorems.core.capability import capability
from theorems.core.claim import Claim, Verdict
from theorems.core.on_kernel import OnKernel


@capability(
    "default-scale",
    "The scale without one given",
    calls=default_scale_calls,
    claims=AGREEMENT,
    says="left to itself its scale is 1/√E, or 1",
)
def kernel_default_scale(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Without a scale given the logits are q·k_t/√E, as in all libraries, or q·k_t as in the paper; the report says
    which.
    """
    rows = rows_of(call, under_test)
    answer = under_test.attend(rows.call)
    usual = list(agreement(rows, answer))
    one = replace(rows, call=rows.call.replace(scale=1.0))
    papers = [] if all(claim.verdict is Verdict.UPHELD for claim in usual) else list(agreement(one, answer))
    found = papers if papers and all(claim.verdict is Verdict.UPHELD for claim in papers) else usual
    (output, *gradients) = found
    yield replace(output, branch="1" if found is papers else "1/√E")
    yield from gradients
