"""The explanation of a failing call: where and by how much the kernel's results are wrong, why, and a failing test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType

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
from attention_conformance.claims.empty_rows import convention_of
from attention_conformance.claims.long_states import EACH_TIME, RETURNS
from attention_conformance.claims.second_calls import ALONE, REDRAWN, RESCALED, UNLIKE
from attention_conformance.claims.statements import capability_of
from attention_conformance.kernel.causes import cause_of
from attention_conformance.kernel.reproducer import numbers_of, reproducer
from attention_conformance.kernel.trace import QUANTITIES, Entry, Trace, entry_of
from attention_conformance.reproduction.tensors import MANY, with_drawn_numbers
from theorems.core.claim import Verdict
from theorems.core.statement import Statement
from theorems.core.under_test import Explanation, Refused


def diagnose(statement: Statement, call: AttentionCall, under_test: OnKernel) -> Explanation:
    """Return a line on how the kernel fails on a call, and the source of a failing test if tests are to be written.

    The kernel is called again, as often as the statement calls it. If the call passes this time, the line and the test
    are empty, and a reason is returned instead of the test.
    """
    trace = trace_failure(statement, call, under_test)
    if trace is None:
        return Explanation(no_test="called again, the kernel is right: its results depend on earlier calls")
    line = _line(statement, trace, under_test)
    if not under_test.writes_tests:
        return Explanation(line)
    if numbers_of(trace.call) > MANY:
        other, lines = with_drawn_numbers(call)
        trace_of_drawn = trace_failure(statement, other, under_test) if lines else None
        if trace_of_drawn is not None:
            test, _ = reproducer(trace_of_drawn.replace(drawn=lines), _line(statement, trace_of_drawn, under_test))
            if test:
                return Explanation(line, test)
    return Explanation(line, *reproducer(trace, line))


def _line(statement: Statement, trace: Trace, under_test: OnKernel) -> str:
    cause = cause_of(trace, under_test.in_format(capability_of(statement).format))
    return f"{statement.id}: {'; '.join(filter(None, (_where(trace), cause)))}."


def trace_failure(statement: Statement, call: AttentionCall, under_test: OnKernel) -> Trace | None:
    """Return the calls up to the first falsified claim, and all claims that the last of them falsifies.

    Return None if no claim of the statement is falsified.
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
    # The last call of the claims on hidden keys has NaN in hidden keys; its results are not compared with correct ones.
    compares = capability != "hidden-keys" and WITHOUT_KEYS not in falsified
    rows = None if not compares else _rows(calls[at - 1], answers[at - 1], under_test)
    trace = Trace(capability, under_test.kernel, tuple(calls[:at]), tuple(answers[:at]), tuple(falsified), (), rows)
    return trace.replace(entries=tuple(_entries(trace)))


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


def _entries(trace: Trace) -> Iterator[Entry]:
    """Yield the kernel's numbers and the correct numbers for each falsified claim that compares them."""
    if trace.rows is None:
        return
    if EACH_TIME in trace.falsified:
        yield from _entries_of_others(trace.rows, trace.answer)
        return
    for name in trace.falsified:
        if name in QUANTITIES:
            yield entry_of(name, trace.rows, trace.answer)


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
