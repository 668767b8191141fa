"""Hidden keys exchanged for others: nothing else may change, not by a bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool

from attention_conformance.claims.agreement import GRADIENTS, same_bits
from generators.attention_call import AttentionCall
from theorems.core.claim import Claim
from theorems.core.on_kernel import Answer, OnKernel, Refused

POISON = 1e30
"""In the place of hidden numbers, unless its products with queries leave the range of the kernel's numbers."""


def exchange_hidden_keys(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[Claim]:
    """The claims about a call some of whose keys are poisoned; nothing where each row sees all.

    Args:
        call: in the kernel's numbers.
        before: the answer to it.
    """
    rng = call.rng()
    seen = call.visibility(under_test.kernel.alignment)
    if seen.all():
        return
    poisoned = keys_to_poison(seen, rng)
    clear = ~(seen & poisoned).any(axis=-1) & seen.any(axis=-1)
    if not clear.any():
        return
    reach = float(np.max(np.sum(np.abs(call.query), axis=-1)))
    size = min(POISON, under_test.kernel.numbers.largest / 8 / max(1.0, reach))
    after = under_test.attend(_with(call, poisoned, size, rng))
    effect = _effect_of_nan(under_test, _with(call, poisoned, np.nan, rng), before, clear)
    changed = same_bits("hidden-keys-change-no-output", after.output[clear], before.output[clear])
    yield replace(changed, branch=f"NaN {effect}")
    yield from _gradients(before, after, clear, poisoned, seen)


def keys_to_poison(seen: Bool[np.ndarray, "B H L T"], rng: np.random.Generator) -> Bool[np.ndarray, "T"]:
    """About half of the keys that no row sees, one at least; where there are none, of those that some row does not."""
    rows = ~seen.reshape(-1, seen.shape[-1])
    never: Any = np.all(rows, axis=0, keepdims=True)
    hidden: Any = never if np.any(never) else rows
    row = hidden[rng.choice(np.flatnonzero(hidden.any(axis=1)))]
    chosen = row & (rng.random(row.size) < 0.5)
    chosen[rng.choice(np.flatnonzero(row))] = True
    return np.asarray(chosen)


def _with(call: AttentionCall, at: Bool[np.ndarray, "T"], size: float, rng: np.random.Generator) -> AttentionCall:
    """The call with ±size in these keys and values, the same in all heads and batch entries."""
    held = {name: getattr(call, name).copy() for name in ("key", "value")}
    for x in held.values():
        x[:, :, at] = size * rng.choice((-1.0, 1.0), x[:1, :1, at].shape)
    return call.replace(**held)


def _effect_of_nan(under_test: OnKernel, call: AttentionCall, before: Answer, clear: Bool[np.ndarray, "B H L"]) -> str:
    try:
        after = under_test.attend(call)
    except Refused:
        return "refused"
    return "changes nothing" if np.array_equal(after.output[clear], before.output[clear]) else "spreads"


def _gradients(
    before: Answer,
    after: Answer,
    clear: Bool[np.ndarray, "B H L"],
    poisoned: Bool[np.ndarray, "T"],
    seen: Bool[np.ndarray, "B H L T"],
) -> Iterator[Claim]:
    if after.query_gradient is not None and before.query_gradient is not None:
        yield same_bits(GRADIENTS[0], after.query_gradient[clear], before.query_gradient[clear])
    if (seen & poisoned).any() or not seen.any(axis=-1).all():
        return
    theirs = []
    for name, x, was in (
        (GRADIENTS[1], after.key_gradient, before.key_gradient),
        (GRADIENTS[2], after.value_gradient, before.value_gradient),
    ):
        if x is not None and was is not None:
            yield same_bits(name, x[:, :, ~poisoned], was[:, :, ~poisoned])
            theirs.append(x[:, :, poisoned])
    if theirs:
        found = np.concatenate(theirs, axis=-1)
        yield same_bits("hidden-keys-have-no-gradient", found, np.zeros_like(found))
