"""What is not seen does not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Bool

from generators.attention_call import AttentionCall
from generators.attention_calls import a_mask, logits_shape, plain_calls
from theorems.capabilities.agreement import GRADIENTS, rows_of, same_bits
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import Answer, OnKernel, Refused
from theorems.core.statement import always

POISON = 1e30
"""In the place of hidden numbers, unless its products with queries leave the range of the kernel's numbers."""

Way = Callable[[AttentionCall, np.random.Generator], AttentionCall]


def _mask(call: AttentionCall, rng: np.random.Generator) -> Bool[np.ndarray, "B H L T"]:
    """Under which one key or more is seen by no row, and each row sees one."""
    shape = logits_shape(call)
    order = rng.permutation(shape[-1])
    hidden = order < rng.integers(1, shape[-1])
    seen = a_mask(shape, rng) & ~hidden
    return np.asarray(seen | (order == shape[-1] - 1))


def _window(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    return call.replace(window=((0, 0), (0, 1), (1, 0))[int(rng.integers(3))])


WAYS: Mapping[str, Way] = MappingProxyType(
    {
        "boolean-mask": lambda call, rng: call.replace(visible=_mask(call, rng)),
        "additive-mask": lambda call, rng: call.replace(bias=np.where(_mask(call, rng), 0.0, -np.inf)),
        "causal": lambda call, rng: call.replace(causal=True),
        "window": _window,
    }
)
"""How a kernel hides keys, by the capability that it declares; each hides one at least of two."""


def _calls() -> SearchStrategy[AttentionCall]:
    return plain_calls(square=True).filter(lambda call: call.key.shape[2] > 1)


@capability(
    "hidden-keys",
    "What is not seen does not matter",
    calls=_calls,
    claims=always("hidden-keys-change-no-output")
    | {GRADIENTS[0]: "where the kernel has a backward pass"}
    | dict.fromkeys(
        (*GRADIENTS[1:], "hidden-keys-have-no-gradient"), "where it has masks, which hide keys from all rows"
    ),
    says="±1e30 in hidden keys and values changes no bit of other rows, forward and backward; NaN is reported",
)
def kernel_hidden_keys(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """Keys are hidden in each way that the kernel has, and some of them poisoned: ±1e30 in key and value. Weights of
    hidden keys are exactly 0, so the rows that do not see a poisoned one have the outputs and dQ that they had, bit for
    bit. Where no row sees one, as under a mask, all other keys have their dK and dV, and the poisoned ones dK = dV = 0.

    NaN in place of ±1e30 is more than anybody promises (0 · NaN is NaN): whether a kernel is immune is told, not
    claimed.
    """
    rng = call.rng()
    for way in (name for name in WAYS if name in under_test.kernel.declares):
        hiding = rows_of(WAYS[way](call, rng), under_test)
        poisoned = _keys_to_poison(hiding.visibility, rng)
        clear = ~(hiding.visibility & poisoned).any(axis=-1)
        clean = hiding.call
        reach = float(np.max(np.sum(np.abs(clean.query), axis=-1)))
        size = min(POISON, under_test.kernel.numbers.largest / 8 / max(1.0, reach))
        before, after = under_test.attend(clean), under_test.attend(_with(clean, poisoned, size, rng))
        told = _effect_of_nan(under_test, _with(clean, poisoned, np.nan, rng), before, clear)
        changed = same_bits("hidden-keys-change-no-output", after.output[clear], before.output[clear])
        yield replace(changed, branch=f"{way}, NaN {told}")
        if under_test.kernel.differentiable:
            yield from _gradients(before, after, clear, poisoned)


def _keys_to_poison(seen: Bool[np.ndarray, "B H L T"], rng: np.random.Generator) -> Bool[np.ndarray, "T"]:
    """About half of the keys that no row sees, one at least; where there are none, of those that some row does not."""
    rows = ~seen.reshape(-1, seen.shape[-1])
    never: Any = np.all(rows, axis=0, keepdims=True)
    hidden: Any = never if np.any(never) else rows
    row = hidden[rng.choice(np.flatnonzero(hidden.any(axis=1)))]
    chosen = row & (rng.random(row.size) < 0.5)
    chosen[rng.choice(np.flatnonzero(row))] = True
    return np.asarray(chosen)


def _with(call: AttentionCall, at: Bool[np.ndarray, "T"], size: float, rng: np.random.Generator) -> AttentionCall:
    """The call with ±size in these keys and values."""
    held = {name: getattr(call, name).copy() for name in ("key", "value")}
    for x in held.values():
        x[:, :, at] = size * rng.choice((-1.0, 1.0), x[:, :, at].shape)
    return call.replace(**held)


def _effect_of_nan(under_test: OnKernel, call: AttentionCall, before: Answer, clear: Bool[np.ndarray, "B H L"]) -> str:
    try:
        after = under_test.attend(call)
    except Refused:
        return "refused"
    return "changes nothing" if np.array_equal(after.output[clear], before.output[clear]) else "spreads"


def _gradients(
    before: Answer, after: Answer, clear: Bool[np.ndarray, "B H L"], poisoned: Bool[np.ndarray, "T"]
) -> Iterator[Claim]:
    (dq, dk, dv), (own_dq, own_dk, own_dv) = (
        [np.asarray(x) for x in (one.query_gradient, one.key_gradient, one.value_gradient)] for one in (after, before)
    )
    yield same_bits("query-gradient", dq[clear], own_dq[clear])
    if clear.all():
        yield same_bits("key-gradient", dk[:, :, ~poisoned], own_dk[:, :, ~poisoned])
        yield same_bits("value-gradient", dv[:, :, ~poisoned], own_dv[:, :, ~poisoned])
        theirs = np.concatenate([x[:, :, poisoned] for x in (dk, dv)], axis=-1)
        yield same_bits("hidden-keys-have-no-gradient", theirs, np.zeros_like(theirs))
