"""Claims that need a second call: on a single batch entry, with other factors, or with another seed of dropout.

Results have the same bits if a batch entry is called without the others, and if 8-bit data are halved and their factors
doubled. Another seed of dropout drops other weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool

from attention_conformance.calls.answer import Answer, OnKernel, attend
from attention_conformance.calls.attention_call import AttentionCall, Memory, State
from attention_conformance.claims.agreement import rows_of, same_bits
from attention_conformance.claims.call_shrinker import cut_call
from theorems.core.claim import Claim, Form, at_least
from theorems.core.tolerances import EXACT

ALONE, RESCALED, REDRAWN = "same-bits-alone", "same-bits-of-other-factors", "another-seed-drops-others"
UNLIKE = {"heads-drop-other-weights": 1, "entries-drop-other-weights": 0}
"""Claims that no two heads, or no two batch entries, drop the same weights: each claim's name with its axis."""
CHANCE = 1e-12
"""The largest probability that a correct kernel fails a claim about dropout by chance."""
LEAST_WEIGHT = 1e-4
"""A number above 6.1e-5, float16's smallest normal number: a larger weight is returned as 0 only if dropped."""
OF_ENTRIES = ("output", "log_sum_exp", "query_gradient", "key_gradient", "value_gradient")
"""The results that have an axis of batch entries."""


def same_alone(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[tuple[str, Claim]]:
    """Yield the claims that the results of a batch entry have the same bits in a call without the other entries.

    Args:
        call: the call, rounded to the kernel's number format.
        before: the answer to the call.
        under_test: the kernel.
    """
    if not call.alone or call.sizes["B"] == 1:
        return
    entry = int(call.rng().integers(call.sizes["B"]))
    alone = cut_call(call, "B", slice(entry, entry + 1)).replace(state=State.ONCE)
    after = under_test[attend](alone)
    for name in OF_ENTRIES:
        ours, theirs = getattr(before, name), getattr(after, name)
        if ours is not None and theirs is not None:
            yield "batch-invariance", same_bits(ALONE, theirs[0], ours[entry])


def same_rescaled(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[tuple[str, Claim]]:
    """Yield the claims that results keep their bits if 8-bit data are halved and their factors ``descales`` doubled.

    The groups and batch entries of query, key and value that are halved are drawn at random.
    """
    if call.descales is None:
        return
    rng, size = call.rng(), call.sizes["H"] // call.sizes["G"]
    power = np.where(rng.random(call.descales.shape) < 0.5, 2.0, 1.0)
    power.flat[rng.integers(power.size)] = 2.0
    factors = dict(zip(("query", "key", "value"), power[..., None, None], strict=True))
    factors["query"] = np.repeat(factors["query"], size, axis=1)
    data = {name: getattr(call, name) / by for name, by in factors.items()}
    # Heads and batch entries are no longer copies of each other, as some memory layouts need: use the contiguous one.
    other = call.replace(**data, descales=call.descales * power, state=State.ONCE, memory=Memory.CONTIGUOUS)
    after = under_test[attend](other)
    for name in ("output", "log_sum_exp"):
        ours, theirs = getattr(before, name), getattr(after, name)
        if ours is not None and theirs is not None:
            yield "fp8-descale", same_bits(RESCALED, theirs, ours)


def drop_others(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[tuple[str, Claim]]:
    """Yield the claims that another seed, head or batch entry drops other weights; none if weights may agree by chance.

    Let p be the probability of dropping a weight. If at least one of two calls keeps a weight, both keep the weight
    with probability (1 − p)/(1 + p).
    """
    if not call.dropout:
        return
    after = under_test[attend](call.replace(seed=call.seed + 1, state=State.ONCE))
    sees = call.visibility(under_test.kernel.alignment).any(axis=-1, keepdims=True)
    felt = sees & (np.maximum(before.output, after.output) > LEAST_WEIGHT)
    alike = math.log((1 - call.dropout) / (1 + call.dropout))
    if int(felt.sum()) * alike < math.log(CHANCE):
        apart = float(((before.output == 0) != (after.output == 0))[felt].sum())
        yield "dropout", at_least(REDRAWN, Form.EXACT, apart, 1.0, rounding=0.0, why=EXACT)
    if any("broadcast" in name for name in under_test.kernel.parameters):
        return  # flax's broadcast_dropout, for example, drops the same weights in all heads and entries
    weights: Any = rows_of(call, under_test).weights
    yield from _drop_unlike(before.output == 0, weights.value > LEAST_WEIGHT, call.dropout)


def _drop_unlike(
    dropped: Bool[np.ndarray, "B H L T"], felt: Bool[np.ndarray, "B H L T"], p: float
) -> Iterator[tuple[str, Claim]]:
    """Yield the claims that no two heads, and no two batch entries, drop the same weights; none if they may by chance.

    Two independent draws that drop a weight with probability p agree on the weight with probability p² + (1 − p)². The
    mask ``felt`` marks weights so large that they are 0 only if they are dropped.
    """
    for name, axis in UNLIKE.items():
        dropped_along, large = (np.moveaxis(x, axis, 0) for x in (dropped, felt))
        if len(large) == 1:
            continue
        both = (large[:1] & large[1:]).reshape(len(large) - 1, -1)
        enough = both.sum(axis=-1) * math.log(p**2 + (1 - p) ** 2) < math.log(CHANCE / len(both))
        if enough.any():
            apart = ((dropped_along[:1] != dropped_along[1:]).reshape(both.shape) & both).sum(axis=-1)[enough]
            yield "dropout", at_least(name, Form.EXACT, float(apart.min()), 1.0, rounding=0.0, why=EXACT)
