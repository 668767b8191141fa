"""The same call twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from generators.attention_call import AttentionCall
from generators.attention_calls import plain_calls
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of, same_bits
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import Answer, OnKernel

RESULTS = [one.name for one in fields(Answer) if one.name != "changed"]


@capability(
    "repeated-calls",
    "The same call twice",
    calls=plain_calls,
    claims=AGREEMENT | {"same-bits": "where the kernel declares that it is deterministic"},
    says="a second call is right as well; the same bits, where it has a parameter `deterministic`",
)
def kernel_repeated_calls(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Nothing of a call is left over for the next one. A kernel that may add up in another order every time is as
    right as one that does not; one that declares to be deterministic returns the same bits, forward and backward.
    """
    rows = rows_of(call, under_test)
    first, second = under_test.attend(rows.call), under_test.attend(rows.call)
    yield from agreement(rows, second)
    if "same-bits" in under_test.kernel.declares:
        for name in RESULTS:
            if getattr(first, name) is not None:
                yield same_bits("same-bits", getattr(second, name), getattr(first, name))
