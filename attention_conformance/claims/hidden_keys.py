"""Claims that numbers in hidden keys have no effect: replacing these numbers changes no bit of any other result.

A kernel that adds numbers in no fixed order, as many do on a GPU, may return other bits when a call is repeated. The
results of such a kernel are compared with the formula instead, within rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attention_conformance.calls.answer import Answer, OnKernel, attend
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.claims.agreement import GRADIENTS, rows_of, same, same_bits
from theorems.core.claim import Claim, Verdict
from theorems.core.under_test import Refused

OUTPUT_UNCHANGED = "hidden-keys-change-no-output"
POISON = 1e30
"""The number put into hidden keys and their values, or a smaller one if products with queries could overflow."""
REPEATS = 8
"""The number of times that a call is repeated to decide whether its results always have the same bits."""


def exchange_hidden_keys(call: AttentionCall, before: Answer, under_test: OnKernel) -> Iterator[Claim]:
    """Yield the claims that other numbers in some hidden keys leave the results unchanged; none if no key is hidden.

    Args:
        call: the call, rounded to the kernel's number format.
        before: the answer to the call.
        under_test: the kernel.
    """
    rng = call.rng()
    visible = call.visibility(under_test.kernel.alignment)
    if visible.all():
        return
    poisoned = keys_to_poison(visible, rng)
    clear = ~(visible & poisoned).any(axis=-1) & visible.any(axis=-1)
    if not clear.any():
        return
    reach = float(np.max(np.sum(np.abs(call.query), axis=-1)))
    size = min(POISON, under_test.kernel.numbers.largest / 8 / max(1.0, reach))
    after = under_test[attend](_with(call, poisoned, size, rng))
    effect = _effect_of_nan(under_test, _with(call, poisoned, np.nan, rng), before, clear)
    for claim in _unchanged(call, before, after, under_test, clear, poisoned, visible):
        yield replace(claim, branch=f"NaN {effect}") if claim.name == OUTPUT_UNCHANGED else claim


def keys_to_poison(visible: Bool[np.ndarray, "B H L T"], rng: np.random.Generator) -> Bool[np.ndarray, "T"]:
    """Draw about half, and at least one, of the keys that no row sees, as a mask.

    If every key is seen by some row, draw from the keys that a random row does not see.
    """
    rows = ~visible.reshape(-1, visible.shape[-1])
    never: Any = np.all(rows, axis=0, keepdims=True)
    hidden: Any = never if np.any(never) else rows
    row = hidden[rng.choice(np.flatnonzero(hidden.any(axis=1)))]
    chosen = row & (rng.random(row.size) < 0.5)
    chosen[rng.choice(np.flatnonzero(row))] = True
    return np.asarray(chosen)


def _with(call: AttentionCall, at: Bool[np.ndarray, "T"], size: float, rng: np.random.Generator) -> AttentionCall:
    """Return the call with ±size in the keys and values where ``at`` is True, equal in all heads and batch entries."""
    tensors = {name: getattr(call, name).copy() for name in ("key", "value")}
    for x in tensors.values():
        x[:, :, at] = size * rng.choice((-1.0, 1.0), x[:1, :1, at].shape)
    return call.replace(**tensors)


def _effect_of_nan(under_test: OnKernel, call: AttentionCall, before: Answer, clear: Bool[np.ndarray, "B H L"]) -> str:
    try:
        after = under_test[attend](call)
    except Refused:
        return "refused"
    return "changes nothing" if np.array_equal(after.output[clear], before.output[clear]) else "spreads"


def _unchanged(
    call: AttentionCall,
    before: Answer,
    after: Answer,
    under_test: OnKernel,
    clear: Bool[np.ndarray, "B H L"],
    poisoned: Bool[np.ndarray, "T"],
    visible: Bool[np.ndarray, "B H L T"],
) -> Iterator[Claim]:
    """Yield the claims that changed numbers in hidden keys leave the other results as before.

    Args:
        call: the call before the change.
        before: the answer to the call before the change.
        after: the answer to the call after the change.
        under_test: the kernel.
        clear: a mask of the rows that see some key, but no changed key.
        poisoned: a mask of the changed keys.
        visible: a mask of the keys that each row sees.
    """
    is_steady: bool | None = None
    compared = [(OUTPUT_UNCHANGED, "output", clear), (GRADIENTS[0], "query_gradient", clear)]
    whole = not (visible & poisoned).any() and visible.any(axis=-1).all()
    if whole:
        clean_keys = np.broadcast_to(~poisoned, (*call.key.shape[:2], len(poisoned)))
        compared += [(GRADIENTS[1], "key_gradient", clean_keys), (GRADIENTS[2], "value_gradient", clean_keys)]
    for name, result, where in compared:
        theirs, ours = getattr(after, result), getattr(before, result)
        if theirs is not None and ours is not None:
            claim = same_bits(name, theirs[where], ours[where])
            if claim.verdict is Verdict.FALSIFIED:
                is_steady = _repeats_bits(call, before, under_test) if is_steady is None else is_steady
                claim = claim if is_steady else _within_rounding(name, call, under_test, theirs, result, where)
            yield claim
    gradients = [x[:, :, poisoned] for x in (after.key_gradient, after.value_gradient) if x is not None]
    if whole and gradients:
        hidden = np.concatenate(gradients, axis=-1)
        yield same_bits("hidden-keys-have-no-gradient", hidden, np.zeros_like(hidden))


def _repeats_bits(call: AttentionCall, before: Answer, under_test: OnKernel) -> bool:
    """Return whether the kernel returns the bits of the answer ``before`` each time the call is repeated."""
    results = ("output", "query_gradient", "key_gradient", "value_gradient")
    returned = {name: x for name in results if (x := getattr(before, name)) is not None}
    again = (under_test[attend](call) for _ in range(REPEATS))
    return all(
        np.array_equal(getattr(answer, name), x, equal_nan=True) for answer in again for name, x in returned.items()
    )


def _within_rounding(
    name: str,
    call: AttentionCall,
    under_test: OnKernel,
    theirs: Float64[np.ndarray, "..."],
    result: str,
    where: Bool[np.ndarray, "..."],
) -> Claim:
    """Claim that a result agrees with the formula, in which hidden keys have no effect."""
    rows = rows_of(call, under_test)
    scales = (None, 1.0) if rows.call.scale is None else (rows.call.scale,)  # a kernel's own scale is 1/√E (None) or 1
    claims = [
        same(name, theirs, getattr(replace(rows, call=rows.call.replace(scale=s)), result), where) for s in scales
    ]
    return next((claim for claim in claims if claim.verdict is Verdict.UPHELD), claims[0])
