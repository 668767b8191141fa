"""All claims about one call of a kernel, whatever the call's options, each with the capability that it concerns."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attention_conformance.calls.answer import Answer, OnKernel, attend
from attention_conformance.calls.attention_call import LONG_STATES, AttentionCall, State
from attention_conformance.calls.call_builder import attended_rows
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.claims.agreement import (
    GRADIENTS,
    OUTPUT,
    rows_of,
    same,
    same_bits,
    same_gradients,
    with_factors,
)
from attention_conformance.claims.empty_rows import claimed_gradients, convention_of, groups_of_nan
from attention_conformance.claims.hidden_keys import exchange_hidden_keys
from attention_conformance.claims.long_states import (
    RESULTS,
    changes_no_setting,
    each_time,
    through_compiler,
    writes_nothing,
)
from attention_conformance.claims.second_calls import CHANCE, LEAST_WEIGHT, drop_others, same_alone, same_rescaled
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, Verdict, at_least
from theorems.core.tolerances import EXACT

WEIGHTS = "weights-are-softmax"
NO_GRADIENT = "rows-without-upstream-add-nothing"
DROPPED = "each-weight-is-kept-or-dropped"
IGNORED = "parameters-have-an-effect"
SHARE = "share-of-dropped-weights"
NOT_POSITIVE = "causal-with-a-scale-not-above-zero"
WITHOUT_KEYS = "no-keys-give-zeros-or-nan"
NAN_OF_SCALE = "NaN where the formula has numbers"
SINK_GRADIENT, BIAS_GRADIENT = "sink-gradient", "bias-gradient"
Groups = Bool[np.ndarray, "B G"]
About = tuple[str, Claim]
"""The pair of a capability's name and a claim about that capability.

The name is empty for a claim of agreement with the formula of attention, which concerns all options of the call.
"""


def examine(call: AttentionCall, under_test: OnKernel) -> Iterator[About]:
    """Yield every claim about the call, each with its capability; some options require several calls of the kernel.

    Raises:
        Refused: the kernel raises an error.
    """
    if call.state in LONG_STATES:
        plain = list(examine(call.replace(state=State.ONCE), under_test))
        yield from plain
        if not any(claim.verdict is Verdict.FALSIFIED for _, claim in plain):
            yield from _in_long_state(call, under_test)
        return
    rows = rows_of(call, under_test)
    rounded_call = rows.call
    first = under_test[attend](rounded_call) if call.state is State.TWICE else None
    answer = under_test[attend](rounded_call)
    yield "memory", writes_nothing(answer)
    yield "memory", changes_no_setting(answer)
    if "parameters" in under_test.kernel.declares:
        ignored = [name for name, account in under_test.kernel.accounts.items() if account == "ignored"]
        claim = at_least(IGNORED, Form.EXACT, -float(len(ignored)), 0.0, rounding=0.0, why=EXACT)
        yield "parameters", replace(claim, detail=f"ignored: {', '.join(ignored)}" if ignored else "")
    if not rounded_call.sizes["T"]:
        yield "output", _without_keys(answer)
        return
    rows = replace(rows, call=with_factors(rounded_call))
    if call.is_large and not _is_scaled_while_hidden(call):
        yield from _of_some_rows(rows, answer)
    else:
        yield from _of_rows(rows, answer)
    if first is not None and not call.dropout and "same-bits" in under_test.kernel.declares:
        for name in RESULTS:
            if getattr(first, name) is not None:
                yield "repeated-calls", same_bits("same-bits", getattr(answer, name), getattr(first, name))
    for again in (same_alone, same_rescaled, drop_others):
        yield from again(rounded_call, answer, under_test)
    if call.poison and call.hides() and not call.dropout:
        for claim in exchange_hidden_keys(rounded_call, answer, under_test):
            yield "hidden-keys", claim


def _without_keys(answer: Answer) -> Claim:
    """Claim that output and dQ of a call without keys are zeros (empty sums), or that they are NaN (0/0)."""
    gradient = np.zeros(0) if answer.query_gradient is None else answer.query_gradient.ravel()
    is_nan = bool(np.isnan(answer.output).all())
    theirs = np.concatenate([answer.output.ravel(), gradient])
    due = np.concatenate(
        [np.full(answer.output.size, np.nan if is_nan else 0.0), np.where(np.isnan(gradient) & is_nan, np.nan, 0.0)]
    )
    return replace(same_bits(WITHOUT_KEYS, theirs, due), branch="NaN" if is_nan else "zeros")


def _in_long_state(call: AttentionCall, under_test: OnKernel) -> Iterator[About]:
    """Yield the claims about a compiled or repeated call whose results are right without compilation and repetition."""
    rows = rows_of(call, under_test)
    answer = under_test[attend](rows.call)
    claims = partial(_of_rows, replace(rows, call=with_factors(rows.call)))
    if call.state is State.MANY:
        for claim in each_time(answer, claims, "same-bits" in under_test.kernel.declares):
            yield "repeated-calls", claim
    else:
        for claim in through_compiler(answer, claims, call.state):
            yield "compiled", claim


def _of_rows(rows: FurtherRows, answer: Answer, of_nan: Groups | None = None) -> Iterator[About]:
    """Yield the claims about all rows of the call ``rows.call``, which may be a part of a larger call.

    If the call leaves the scale to the kernel, the kernel may use 1/√E or, like the paper, 1.
    """
    if rows.call.scale is not None or rows.call.dtype:  # captured calls state their scale
        yield from _with_known_scale(rows, answer, of_nan)
        return
    usual = list(_with_known_scale(rows, answer, of_nan))
    if all(claim.verdict is Verdict.UPHELD for _, claim in usual):
        claims, scale = usual, "1/√E"
    else:
        papers = list(_with_known_scale(replace(rows, call=rows.call.replace(scale=1.0)), answer, of_nan))
        is_papers = all(claim.verdict is Verdict.UPHELD for _, claim in papers)
        claims, scale = (papers, "1") if is_papers else (usual, "1/√E")
    for about, claim in claims:
        yield about, replace(claim, branch=scale) if claim.name == OUTPUT else claim


def _with_known_scale(rows: FurtherRows, answer: Answer, of_nan: Groups | None) -> Iterator[About]:
    """Yield the claims about rows whose factor of q·k is known; under dropout, first find the dropped weights."""
    if rows.call.dropout:
        rows = yield from _of_dropout(rows, answer)
    yield from _comparisons(rows, answer, of_nan)


def _comparisons(rows: FurtherRows, answer: Answer, of_nan: Groups | None = None) -> Iterator[About]:
    """Yield the claims of agreement with the formula; rows that see no key must all follow one convention.

    Args:
        rows: the correct results.
        answer: the kernel's results.
        of_nan: a mask of the groups of heads, (B, G), that have a row without visible keys whose result is NaN; by
            default computed from ``rows`` and ``answer``.
    """
    empty = rows.empty & ~rows.call.absent
    of_nan = groups_of_nan(rows, answer.output) if of_nan is None else of_nan
    if empty.any():
        convention = convention_of(rows, answer)
        rows = convention.rows
        yield "empty-rows", convention.claim
    if _is_scaled_while_hidden(rows.call):
        of_scale = yield from _hidden_keys_under_scale(rows, answer)
        if of_scale.any():
            return
    seeing = ~rows.empty if rows.empty.any() else None
    if not rows.empty.all():
        yield "", same(OUTPUT, answer.output, rows.output, seeing)
        if answer.log_sum_exp is not None:
            yield "log-sum-exp", same("log-sum-exp", answer.log_sum_exp, rows.log_sum_exp, seeing)
        if answer.weights is not None:
            yield "", _same_weights(rows, answer.weights, seeing)
    for claim in same_gradients(rows, answer, claimed_gradients(rows, answer, of_nan)):
        yield "", claim
    if not of_nan.any():
        yield from _of_further_gradients(rows, answer)


def _is_scaled_while_hidden(call: AttentionCall) -> bool:
    """Return whether a call is causal and has a scale of zero or below."""
    return call.causal and call.scale is not None and call.scale <= 0


def _hidden_keys_under_scale(rows: FurtherRows, answer: Answer) -> Generator[About, None, Bool[np.ndarray, "B H L"]]:
    """Claim that each causal row with a hidden key has the correct output or only NaN, if the scale is not positive.

    A kernel that multiplies hidden logits of −∞ by such a scale returns NaN, as PyTorch's kernel does on a CPU. The
    report names this deviation from the formula, which falsifies no other capability.

    Returns:
        A mask of the rows that are NaN. If there are any, this function also makes the claims about the other rows.
    """
    hidden = ~rows.visibility.all(axis=-1) & ~rows.empty
    of_scale = hidden & np.isnan(answer.output).all(axis=-1)
    others = ~of_scale & ~rows.empty
    if of_scale.any() and others.any():
        yield "", same(OUTPUT, answer.output, rows.output, others)
    if hidden.any():
        theirs = np.where(of_scale[..., None], rows.output.value, answer.output)
        branch = NAN_OF_SCALE if of_scale.any() else "numbers of the formula"
        about = "causal" if rows.call.sizes["L"] == rows.call.sizes["T"] else "causal-rectangle"
        yield about, replace(same(NOT_POSITIVE, theirs, rows.output, hidden), branch=branch)
    return of_scale


def _same_weights(rows: FurtherRows, theirs: Float64[np.ndarray, "B H L T"], where: Any) -> Claim:
    """Claim that the returned weights are correct; a kernel may return them before or after dropout."""
    whole = same(WEIGHTS, theirs, rows.returned_weights, where)
    if not rows.call.dropout or whole.verdict is Verdict.UPHELD:
        return whole
    return same(WEIGHTS, theirs, rows.returned_weights_after_dropout, where)


def _of_further_gradients(rows: FurtherRows, answer: Answer) -> Iterator[About]:
    """Yield the claims that the gradients of sinks and of a bias agree with the formula."""
    if answer.sink_gradient is not None:
        yield "sinks", same(SINK_GRADIENT, answer.sink_gradient, rows.sink_gradient)
    if answer.bias_gradient is not None and rows.call.bias is not None:
        theirs = answer.bias_gradient
        yield "bias-gradient", same(BIAS_GRADIENT, theirs, rows.bias_gradient, ~np.isneginf(rows.call.bias))


def _of_some_rows(rows: FurtherRows, answer: Answer) -> Iterator[About]:
    """Yield the claims about a large call, for the rows with an upstream gradient; no other row affects gradients."""
    batch, groups, places = attended_rows(rows.call)
    sizes = rows.call.sizes
    size = sizes["H"] // sizes["G"]
    heads = [g * size + h for g in groups for h in range(size)]
    of_rows, of_keys = np.ix_(batch, heads, places), np.ix_(batch, groups)
    names = [name for name in RESULTS if name not in ("sink_gradient", "bias_gradient")]
    cuts = {name: of_keys if name in ("key_gradient", "value_gradient") else of_rows for name in names}
    numbers = {name: getattr(answer, name) for name in names}
    part: dict[str, Any] = {name: None if x is None else x[cuts[name]] for name, x in numbers.items()}
    part["sink_gradient"] = None if answer.sink_gradient is None else answer.sink_gradient[heads]
    part["bias_gradient"] = None  # the kernel's gradient has the shape of the whole bias
    part_of_rows = replace(
        rows,
        call=rows.call.part(rows.alignment, batch, groups, places),
        places=rows.call.ahead(np.asarray(places), rows.alignment),
    )
    of_nan = groups_of_nan(rows, answer.output)[of_keys]
    yield from _of_rows(part_of_rows, replace(answer, **part), of_nan)
    if part_of_rows.empty.any():  # NaN in rows that are not compared may reach all gradients
        return
    rest = []
    for name in ("query_gradient", "key_gradient", "value_gradient"):
        if numbers[name] is not None:
            x = numbers[name].copy()
            x[cuts[name]] = 0.0
            rest.append(x.ravel())
    if rest and not np.isnan(answer.output).any():
        theirs = np.concatenate(rest)
        lost = exact(np.zeros(theirs.shape)).widen(np.full(theirs.shape, rows.numbers.lost))
        yield "", same(NO_GRADIENT, theirs, lost)


def _of_dropout(rows: FurtherRows, answer: Answer) -> Generator[About, None, FurtherRows]:
    """Yield the claims about dropout with probability p: each weight is 0 or s/(1 − p), and a share p of them is 0.

    Here s is the softmax weight. Values are the identity, so that the output equals the weights.

    Returns:
        The correct results if those weights are dropped that the kernel dropped.
    """
    p = rows.call.dropout
    s: Any = rows.weights
    nonzero = s.value > LEAST_WEIGHT
    is_kept = answer.output != 0
    rows = with_dropped_weights(rows, answer)
    if not rows.empty.all():
        yield "dropout", same(DROPPED, answer.output, rows.output, ~rows.empty)
    n = int(nonzero.sum())
    if n:
        # By Hoeffding's inequality, the share of n independent draws is off by more with probability at most CHANCE.
        far = math.sqrt(math.log(2 / CHANCE) / (2 * n))
        off = abs(float(is_kept[nonzero].mean()) - (1 - p))
        yield "dropout", at_least(SHARE, Form.EFFECTIVE, far, off, rounding=0.0, why=EXACT)
    return rows


def with_dropped_weights(rows: FurtherRows, answer: Answer) -> FurtherRows:
    """Return the correct results if the weights that are 0 in the output are dropped (values are the identity)."""
    return replace(rows, factor=np.where(answer.output != 0, 1 / (1 - rows.call.dropout), 0.0))


GRADIENT_CLAIMS = (*GRADIENTS, NO_GRADIENT)
"""The names of the claims of agreement with the formula that concern the backward pass."""
