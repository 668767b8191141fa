"""A second call: the same bits of one entry of the batch alone, and of other factors with other data; other weights
dropped under another seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from attention_conformance.claims.agreement import same_bits
from attention_conformance.claims.smaller import cut_call
from generators.attention_call import AttentionCall, Memory, State
from theorems.core.claim import Claim, Form, at_least
from theorems.core.on_kernel import Answer, OnKernel
from theorems.core.tolerances import EXACT

ALONE, RESCALED, REDRAWN = "same-bits-alone", "same-bits-of-other-factors", "another-seed-drops-others"
CHANCE = 1e-12
"""With which a right kernel is blamed for what it drew."""
LEAST_WEIGHT = 1e-4
"""Above float16's least normal number, 6.1e-5: a larger weight is 0 only if it was dropped."""
OF_ENTRIES = ("output", "log_sum_exp", "query_gradient", "key_gradient", "value_gradient")
"""What an entry of the batch has of its own."""


def same_alone(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[tuple[str, Claim]]:
    """An entry of the batch attended to alone.

    Args:
        call: in the kernel's numbers.
        before: the answer to it.
    """
    if not call.alone or call.sizes["B"] == 1:
        return
    entry = int(call.rng().integers(call.sizes["B"]))
    alone = cut_call(call, "B", slice(entry, entry + 1)).replace(state=State.ONCE)
    after = under_test.attend(alone)
    for name in OF_ENTRIES:
        ours, theirs = getattr(before, name), getattr(after, name)
        if ours is not None and theirs is not None:
            yield "batch-invariance", same_bits(ALONE, theirs[0], ours[entry])


def same_rescaled(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[tuple[str, Claim]]:
    """Half the data and double the factor, of some groups of some entries of query, key and value."""
    if call.descales is None:
        return
    rng, size = call.rng(), call.sizes["H"] // call.sizes["G"]
    power = np.where(rng.random(call.descales.shape) < 0.5, 2.0, 1.0)
    power.flat[rng.integers(power.size)] = 2.0
    held = dict(zip(("query", "key", "value"), power[..., None, None], strict=True))
    held["query"] = np.repeat(held["query"], size, axis=1)
    data = {name: getattr(call, name) / by for name, by in held.items()}
    # Heads and entries are no copies of one any more.
    other = call.replace(**data, descales=call.descales * power, state=State.ONCE, memory=Memory.CONTIGUOUS)
    after = under_test.attend(other)
    for name in ("output", "log_sum_exp"):
        ours, theirs = getattr(before, name), getattr(after, name)
        if ours is not None and theirs is not None:
            yield "fp8-descale", same_bits(RESCALED, theirs, ours)


def drop_others(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[tuple[str, Claim]]:
    """Under another seed other weights are dropped: nothing where there are so few that chance may drop the same.

    Of a weight that is kept in one call at least, both keep it with probability (1 − p)/(1 + p).
    """
    if not call.dropout:
        return
    after = under_test.attend(call.replace(seed=call.seed + 1, state=State.ONCE))
    sees = call.visibility(under_test.kernel.alignment).any(axis=-1, keepdims=True)
    kept = sees & (np.maximum(before.output, after.output) > LEAST_WEIGHT)
    alike = math.log((1 - call.dropout) / (1 + call.dropout))
    if int(kept.sum()) * alike < math.log(CHANCE):
        apart = float(((before.output == 0) != (after.output == 0))[kept].sum())
        yield "dropout", at_least(REDRAWN, Form.EXACT, apart, 1.0, rounding=0.0, why=EXACT)
