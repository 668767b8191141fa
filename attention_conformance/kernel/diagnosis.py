"""The explanation of a falsified capability: where, by how much, perhaps why; and a test that fails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float64

from attention_conformance.calls.answer import Answer, OnKernel, attend
from attention_conformance.calls.attention_call import REPEATS, AttentionCall
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.claims.agreement import GRADIENTS, rows_of, with_factors
from attention_conformance.claims.capabilities import options_on
from attention_conformance.claims.empty_rows import convention_of
from attention_conformance.claims.examination import BIAS_GRADIENT, DROPPED, WEIGHTS, with_what_was_dropped
from attention_conformance.claims.long_states import EACH_TIME, RETURNS
from attention_conformance.claims.same_again import ALONE, REDRAWN, RESCALED, UNLIKE
from attention_conformance.kernel.reproducer import numbers_of, reproducer
from attention_conformance.kernel.trace import QUANTITIES, Entry, Trace, entry_of
from attention_conformance.reproduction.tensors import MANY, with_drawn_numbers
from theorems.core.claim import Verdict
from theorems.core.statement import Statement
from theorems.core.under_test import Explanation, Refused


def diagnose(statement: Statement, call: AttentionCall, under_test: OnKernel) -> Explanation:
    """Return a line about the failing call, and the source of a test function; both empty if it does not fail again.

    The kernel is called again, as often as the statement calls it.
    """
    trace = trace_failure(statement, call, under_test)
    if trace is None:
        return Explanation(no_test="called again the kernel is right: what it returns depends on what was before")
    line = _line(statement, call, trace)
    if numbers_of(trace.call) > MANY:
        other, lines = with_drawn_numbers(call)
        drawn = trace_failure(statement, other, under_test) if lines else None
        if drawn is not None:
            test, _ = reproducer(drawn.replace(drawn=lines), _line(statement, other, drawn))
            if test:
                return Explanation(line, test)
    return Explanation(line, *reproducer(trace, line))


def _line(statement: Statement, call: AttentionCall, trace: Trace) -> str:
    return f"{statement.id}: {'; '.join(filter(None, (_where(trace), _together(call) or _cause(trace))))}."


def trace_failure(statement: Statement, call: AttentionCall, under_test: OnKernel) -> Trace | None:
    """Return the claims that are falsified first, all by the same calls of the kernel, and these calls."""
    calls: list[AttentionCall] = []
    answers: list[Answer | None] = []

    def record(given: AttentionCall) -> Answer:
        calls.append(given)
        answers.append(None)
        answers[-1] = answer = under_test[attend](given)
        return answer

    falsified: list[str] = []
    at = 0
    try:
        for claim in statement.conclusion(call, under_test.replace(under_test.name, {attend: record})):
            if claim.verdict is Verdict.FALSIFIED and at in (0, len(calls)):
                at = len(calls)
                falsified.append(claim.name)
    except Refused:
        pass
    if not falsified:
        return None
    assert statement.kernel is not None
    capability = statement.kernel.capability
    # The last of the calls on hidden keys has NaN in them.
    rows = None if capability == "hidden-keys" else _rows(calls[at - 1], answers[at - 1], under_test)
    made = Trace(capability, under_test.kernel, tuple(calls[:at]), tuple(answers[:at]), tuple(falsified), (), rows)
    return made.replace(entries=tuple(_entries(made)))


def _rows(call: AttentionCall, answer: Answer | None, under_test: OnKernel) -> FurtherRows:
    """Return the correct results of a call under the conventions that an answer to it follows."""
    rows = rows_of(call, under_test)
    rows = replace(rows, call=with_factors(rows.call))
    if answer is None:
        return rows
    if call.dropout:
        return with_what_was_dropped(rows, answer)
    return convention_of(rows, answer).rows if (rows.empty & ~rows.call.absent).any() else rows


def _entries(trace: Trace) -> Iterator[Entry]:
    """Yield the entries of each falsified claim that compares numbers with the correct ones."""
    if trace.rows is None:
        return
    if EACH_TIME in trace.falsified:
        yield from _entries_of_others(trace.rows, trace.answer)
        return
    for name in trace.falsified:
        if name in QUANTITIES:
            yield entry_of(name, trace.rows, trace.answer)


def _entries_of_others(rows: FurtherRows, answer: Answer) -> Iterator[Entry]:
    """Yield the first wrong entries of each quantity among the answers to a repeated call."""
    for name in QUANTITIES:
        if QUANTITIES[name].of_answer(answer) is not None and name not in (DROPPED, BIAS_GRADIENT, WEIGHTS):
            entries = (entry_of(name, rows, other) for other, _ in answer.others)
            wrong = (entry for entry in entries if entry.is_off)
            yield from islice(wrong, 1)


def _together(call: AttentionCall) -> str:
    """Return the options that fail only together, which is more than a guess; empty if one is enough."""
    options = list(options_on(call))
    if "empty-rows" in options:
        options.remove("boolean-mask")  # it is on wherever there are such rows
    return f"only where {' and '.join(options)} meet, as far as was found" if len(options) > 1 else ""


def _where(trace: Trace) -> str:
    """Return the worst entry, its number and the correct one."""
    if not trace.entries:
        return OTHERWISE.get(trace.falsified[0], f"{trace.falsified[0]} does not hold")
    return " and ".join(entry.describe() for entry in trace.entries[:1]) + (
        f"; {', '.join(entry.what.symbol for entry in trace.entries[1:])} likewise" if len(trace.entries) > 1 else ""
    )


OTHERWISE: Mapping[str, str] = MappingProxyType(
    {
        "rows-that-see-nothing": "rows that see no key are neither all 0 nor all NaN",
        "hidden-keys-change-no-output": "other numbers in keys that a row does not see change its output",
        "hidden-keys-have-no-gradient": "keys that no row sees have a gradient",
        "same-bits": "the same call twice gives other bits",
        ALONE: "an entry of a batch has other bits than alone",
        REDRAWN: "another seed drops the same weights",
        **{name: f"two {name.partition('-')[0]} drop the same weights" for name in UNLIKE},
        RESCALED: "half the data and double the factor give other bits",
        "parameters-have-an-effect": "it takes parameters, and ignores them",
        "inputs-are-unchanged": "it writes to its arguments, or beside them",
        RETURNS: "through torch.compile it raises, where it returns by itself",
        EACH_TIME: f"of {REPEATS} equal calls some are wrong",
        "query-gradient": "other numbers in keys that a row does not see change its dQ",
        "key-gradient": "other numbers in keys that no row sees change dK of other keys",
        "value-gradient": "other numbers in keys that no row sees change dV of other keys",
    }
)
"""The description of a falsified claim that compares no numbers with the correct ones."""

BY_CLAIM: Mapping[str, str] = MappingProxyType(
    {
        "rows-that-see-nothing": "hidden logits are a large finite number in place of −∞, or the backward pass follows"
        " another convention than the forward pass",
        "hidden-keys-change-no-output": "something is taken over all keys, hidden ones too (a maximum, a scale, a sum),"
        " or hidden logits are finite",
        "hidden-keys-have-no-gradient": "the backward pass does not mask",
        "same-bits": "the order of a sum depends on scheduling, as with atomic additions",
        "inputs-are-unchanged": "it works in place where it should on a copy",
        EACH_TIME: "a race, memory that is not cleared, or something that is counted",
    }
)
BY_CAPABILITY: Mapping[str, str] = MappingProxyType(
    {
        "grouped-heads": "heads belong to other groups than h // (H/G)",
        "memory": "strides are taken for those of a contiguous tensor",
        "causal-rectangle": "the diagonal of L ≠ T is where that of L = T would be",
        "default-scale": "the scale that it takes by itself is neither 1/√E nor 1",
        "compiled": "something that was traced is taken for constant, an operator has another shape, other strides or"
        " another effect than it says, or there is a branch for compiled code",
        "repeated-calls": "something of the first call is left over: a buffer that is not cleared",
    }
)
BY_GRADIENTS: Mapping[frozenset[str], str] = MappingProxyType(
    {
        frozenset(GRADIENTS[:1]): "how dQ is added up over the keys",
        frozenset(GRADIENTS[1:2]): "how dK is added up over the queries, or a scale that it lacks",
        frozenset(GRADIENTS[2:]): "how dV is added up over the queries, or the weights that go into it",
        frozenset(GRADIENTS[:2]): "the gradient of the logits: u·v − u·o, the scale, the derivative of a cap",
        frozenset(GRADIENTS): "the weights of the backward pass: what is hidden there, or the log-sum-exp that they are"
        " taken again from",
    }
)
BLOCKS = (8, 16, 32, 64, 128, 256)


def _cause(trace: Trace) -> str:
    """Return a guess at the cause, marked as one."""
    guesses = [*_by_claims(trace), *_by_numbers(trace)]
    return f"perhaps {guesses[0]}" if guesses else ""


def _by_claims(trace: Trace) -> Iterator[str]:
    first, claims = trace.falsified[0], frozenset(trace.falsified)
    if first in BY_CLAIM:
        yield BY_CLAIM[first]
    if trace.capability == "hidden-keys":
        yield "the backward pass does not mask"
    if "log-sum-exp" in claims and len(claims) == 1:
        yield from _of_log_sum_exp(trace)
    if trace.capability == "compiled":
        yield BY_CAPABILITY["compiled"]
    yield from _by_size(trace.call)
    if trace.capability in BY_CAPABILITY:
        yield BY_CAPABILITY[trace.capability]
    if claims in BY_GRADIENTS:
        hides = trace.call.causal or trace.call.visible is not None or trace.call.bias is not None or trace.call.window
        yield BY_GRADIENTS[claims] if claims != frozenset(GRADIENTS) or not hides else "the backward pass does not mask"
    elif claims <= frozenset(GRADIENTS):
        yield "the weights of the backward pass: a mask that nobody asked for, or one that is forgotten"


def _of_log_sum_exp(trace: Trace) -> Iterator[str]:
    entry = trace.entries[0]
    known = np.isfinite(entry.theirs) & (np.abs(entry.due) > 1e-3)
    ratio = entry.theirs[known] / entry.due[known]
    if ratio.size and np.allclose(ratio, 1 / math.log(2), rtol=1e-3):
        yield "the logarithm is to the base 2"
    yield "the scale enters the log-sum-exp another time, or not at all"


def _by_numbers(trace: Trace) -> Iterator[str]:
    if not trace.entries:
        return
    entry, call = trace.entries[0], trace.call
    if not np.isfinite(entry.theirs).all():
        yield "an exponential overflows: the maximum is not subtracted, or is −∞ − (−∞)"
    elif call.exact or _largest_logit(call) < -100:
        yield "logits that are large, or all far below 0: a running maximum that does not start at −∞"
    hides = {"causal": call.causal, "window": call.window is not None, "mask": call.visible is not None}
    for name, is_there in hides.items():
        if is_there:
            yield f"which keys the {name} hides" if name != "causal" else "which keys the causal mask hides"
    if call.bias is not None:
        yield "how the bias is added"
    if call.softcap:
        yield "where the cap is applied"


def _largest_logit(call: AttentionCall) -> float:
    key: Float64[np.ndarray, "..."] = np.repeat(call.key, call.query.shape[1] // call.key.shape[1], axis=1)
    return float(np.max(call.query @ np.swapaxes(key, -1, -2)))


def _by_size(call: AttentionCall) -> Iterator[str]:
    """Yield guesses from lengths next to block sizes: calls are made small, so a length that stays long is needed."""
    sizes: dict[str, Any] = call.sizes
    for axis, what in (("T", "keys"), ("L", "queries"), ("E", "a width"), ("M", "a width of values")):
        size = sizes[axis]
        block = next((b for b in BLOCKS if size in (b - 1, b, b + 1)), 0)
        if block and size > 5:
            article = "" if axis in "TL" else " of"
            yield (
                f"a block of {block}: no smaller failing call than one with {what}{article} {axis} = {size} was found"
            )
