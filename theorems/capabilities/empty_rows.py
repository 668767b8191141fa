"""Rows that see nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis.strategies import SearchStrategy

from generators.attention_call import AttentionCall
from generators.attention_calls import a_mask, logits_shape, plain_calls, with_option
from theorems.capabilities.agreement import GRADIENTS, OUTPUT, rows_of, same, same_bits, same_gradients
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import Answer, OnKernel
from theorems.rounding.attention_rows import AttentionRows

EMPTY = "rows-that-see-nothing"


def _calls() -> SearchStrategy[AttentionCall]:
    def option(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
        shape = logits_shape(call)
        seen = np.broadcast_to(a_mask(shape, rng), shape).copy()
        empty = rng.random(shape[:-1]) < 0.4
        empty[0, 0, 0] = True
        seen[empty] = False
        return call.replace(visible=seen)

    return with_option(option, plain_calls())


@capability(
    "empty-rows",
    "Rows that see no key",
    calls=_calls,
    claims={EMPTY: "on every case", OUTPUT: "where there are other rows"}
    | dict.fromkeys(GRADIENTS, "where the convention is zeros, and the kernel has a backward pass"),
    says="they are all zeros, or all NaN; other rows are right",
)
def kernel_empty_rows(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Softmax over no keys is not defined. A kernel follows one convention in all such rows of a call: zeros, then
    dQ is 0 there and the rows add nothing to dK and dV; or NaN, forward and backward. Other rows are right either
    way.
    """
    rows = rows_of(call, under_test)
    yield from convention(rows, under_test.attend(rows.call))


def convention(rows: AttentionRows, answer: Answer) -> Iterator[Claim]:
    """The claims about a call some of whose rows see nothing."""
    empty, dq = rows.empty, answer.query_gradient
    found = [answer.output[empty]] + ([] if dq is None else [dq[empty]])
    nan = bool(np.isnan(found[0]).all())
    due = np.nan if nan else 0.0
    theirs = np.concatenate([x.ravel() for x in found])
    claim = same_bits(EMPTY, theirs, np.full(theirs.shape, due))
    yield replace(claim, branch="NaN" if nan else "zeros")
    if not empty.all():
        yield same(OUTPUT, answer.output, rows.output, ~empty)
    if not nan:
        yield from same_gradients(rows, answer)
