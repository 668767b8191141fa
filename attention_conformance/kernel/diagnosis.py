"""The explanation of a failing call: where and by how much the kernel's results are wrong, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any

from attention_conformance.calls.answer import Answer, OnKernel, attend
from attention_conformance.calls.attention_call import REPEATS, AttentionCall
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.claims.agreement import rows_of, with_factors
from attention_conformance.claims.call_claims import (
    BIAS_GRADIENT,
    DROPPED,
    NOT_POSITIVE,
    WEIGHTS,
    WITHOUT_KEYS,
    with_dropped_weights,
)
from attention_conformance.claims.capabilities import Capability
from attention_conformance.claims.empty_rows import convention_of
from attention_conformance.claims.long_states import EACH_TIME, RETURNS
from attention_conformance.claims.second_calls import ALONE, REDRAWN, RESCALED, UNLIKE
from attention_conformance.kernel.causes import cause_of
from attention_conformance.kernel.trace import QUANTITIES, Entry, Trace, entry_of
from theorems.core.claim import Verdict
from theorems.core.under_test import Refused


def diagnose(capability: Capability, call: AttentionCall, under_test: OnKernel) -> str:
    """Return a line on how the kernel fails a capability on a call; empty if the call passes this time.

    The kernel is called again, as often as the claims require. Its number format is that in which it fails.
    """
    trace = trace_failure(capability, call, under_test)
    if trace is None:
        return ""
    return f"kernel-{capability.name}: {'; '.join(filter(None, (_where(trace), cause_of(trace, under_test))))}."


def trace_failure(capability: Capability, call: AttentionCall, under_test: OnKernel) -> Trace | None:
    """Return the call that falsifies the first falsified claim, and all claims that it falsifies.

    Return None if no claim of the capability is falsified.
    """
    calls: list[AttentionCall] = []
    answers: list[Answer | None] = []

    def record(recorded_call: AttentionCall) -> Answer:
        calls.append(recorded_call)
        answers.append(None)
        answers[-1] = answer = under_test[attend](recorded_call)
        return answer

    falsified: list[str] = []
    at = 0
    with suppress(Refused):
        recording: Any = under_test.replace(under_test.name, {attend: record})
        for claim in capability.claims_on(call, recording):
            if claim.verdict is Verdict.FALSIFIED and at in (0, len(calls)):
                at = len(calls)
                falsified.append(claim.name)
    if not falsified:
        return None
    # The last call of the claims on hidden keys has NaN in hidden keys; its results are not compared with correct ones.
    compares = capability.name != "hidden-keys" and WITHOUT_KEYS not in falsified
    failing, answer = calls[at - 1], answers[at - 1]
    rows = _rows(failing, answer, under_test) if compares else None
    entries = tuple(_entries(rows, answer, falsified))
    return Trace(capability.name, under_test.kernel, failing, answer, tuple(falsified), entries, rows)


def _rows(call: AttentionCall, answer: Answer | None, under_test: OnKernel) -> FurtherRows:
    """Return the correct results of a call, given the weights that the kernel dropped and its results in empty rows.

    Empty rows see no key; a kernel may follow one of several conventions for them.
    """
    rows = rows_of(call, under_test)
    rows = replace(rows, call=with_factors(rows.call))
    if answer is None:
        return rows
    if call.dropout:
        return with_dropped_weights(rows, answer)
    return convention_of(rows, answer).rows if (rows.empty & ~rows.call.absent).any() else rows


def _entries(rows: FurtherRows | None, answer: Answer | None, falsified: Sequence[str]) -> Iterator[Entry]:
    """Yield the kernel's numbers and the correct numbers for each falsified claim that compares them."""
    if rows is None or answer is None:
        return
    if EACH_TIME in falsified:
        yield from _entries_of_others(rows, answer)
        return
    for name in falsified:
        if name in QUANTITIES:
            yield entry_of(name, rows, answer)


def _entries_of_others(rows: FurtherRows, answer: Answer) -> Iterator[Entry]:
    """Yield, for each quantity, such as the output, the kernel's numbers in the first repetition where any is wrong."""
    for name in QUANTITIES:
        if QUANTITIES[name].of_answer(answer) is not None and name not in (DROPPED, BIAS_GRADIENT, WEIGHTS):
            entries = (entry_of(name, rows, other) for other, _ in answer.others)
            wrong = (entry for entry in entries if entry.is_off)
            yield from islice(wrong, 1)


def _where(trace: Trace) -> str:
    """Return a text on the entry with the largest error: index, the kernel's number and the correct number."""
    if not trace.entries:
        return OTHERWISE.get(trace.falsified[0], f"{trace.falsified[0]} does not hold")
    return " and ".join(entry.describe() for entry in trace.entries[:1]) + (
        f"; {', '.join(entry.what.symbol for entry in trace.entries[1:])} likewise" if len(trace.entries) > 1 else ""
    )


OTHERWISE: Mapping[str, str] = MappingProxyType(
    {
        "rows-that-see-nothing": "rows that see no key are neither all 0 nor all NaN",
        WITHOUT_KEYS: "without keys the output is neither all 0 nor all NaN",
        NOT_POSITIVE: "with a scale of at most zero, rows with a hidden key are neither right nor all NaN",
        "hidden-keys-change-no-output": "other numbers in keys that a row does not see change its output",
        "hidden-keys-have-no-gradient": "keys that no row sees have a gradient",
        "same-bits": "the same call twice gives other bits",
        ALONE: "a batch entry has other bits in the batch than alone",
        REDRAWN: "another seed drops the same weights",
        **{name: f"two {name.partition('-')[0]} drop the same weights" for name in UNLIKE},
        RESCALED: "halved data with doubled factors give other bits",
        "parameters-have-an-effect": "the kernel ignores parameters that it takes",
        "inputs-are-unchanged": "the kernel writes to its arguments, or beside them",
        RETURNS: "the kernel raises an exception only if torch.compile compiles it",
        EACH_TIME: f"of {REPEATS} equal calls some are wrong",
        "query-gradient": "other numbers in keys that a row does not see change its dQ",
        "key-gradient": "other numbers in keys that no row sees change dK of other keys",
        "value-gradient": "other numbers in keys that no row sees change dV of other keys",
    }
)
"""A description of the failure for each claim that does not compare results with correct numbers."""
