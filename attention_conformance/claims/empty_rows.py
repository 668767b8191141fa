"""Rows that see nothing follow one convention, and what it leaves to be claimed of gradients.

Softmax over no keys is not defined, so that is a contract, which is found out and reported: zeros, forward and
backward; the mean of all values; or NaN. Of the last two there are two each. Where a number is added to hidden logits,
a gradient goes to them: through a mean to all logits, which that number has made equal; and of −∞ dQ of the row is NaN,
and so are dK and dV of its group, which are sums over its rows. Where hidden logits are exchanged for a number, as by
``masked_fill``, none does: dQ is 0 and dK what other rows give, and of −∞ dV alone is NaN, a sum of weights that are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attention_conformance.claims.agreement import same, same_bits
from theorems.core.claim import Claim, Verdict
from theorems.core.on_kernel import Answer
from theorems.rounding.further_rows import FurtherRows

EMPTY = "rows-that-see-nothing"
ZEROS, MEAN, NAN, NAN_ALONE = "zeros", "mean", "NaN", "NaN, without a gradient"
MEAN_THROUGH = "mean, with its gradient"


@dataclass(frozen=True)
class Convention:
    """What the rows of a call that see nothing are.

    Attributes:
        claim: that all of them are that, and its name.
        rows: the formula that has it.
    """

    claim: Claim
    rows: FurtherRows


def convention_of(rows: FurtherRows, answer: Answer) -> Convention:
    """The nearest one to what a kernel returned for a call with such rows."""
    empty = rows.empty & ~rows.call.absent
    output = answer.output[empty]
    rows = _with_means(rows, empty, output)
    if rows.uniform:
        rows = replace(rows, through=_goes_through(rows, empty, answer))
        claim = same(EMPTY, answer.output, rows.output, empty)
        return Convention(replace(claim, branch=MEAN_THROUGH if rows.through else MEAN), rows)
    name = NAN if np.isnan(output).all() else ZEROS
    theirs = [output.ravel()]
    due = [np.full(output.size, 0.0 if name == ZEROS else np.nan)]
    if answer.query_gradient is not None:
        gradient = answer.query_gradient[empty].ravel()
        if name == NAN and not gradient.any():
            name = NAN_ALONE
        theirs.append(gradient)
        may_be_nan = np.isnan(gradient) & _differentiates_log_zero(rows)
        due.append(np.where(may_be_nan | (name == NAN), np.nan, 0.0))
    return Convention(replace(same_bits(EMPTY, np.concatenate(theirs), np.concatenate(due)), branch=name), rows)


def _with_means(
    rows: FurtherRows, empty: Bool[np.ndarray, "B H L"], found: Float64[np.ndarray, "rows M"]
) -> FurtherRows:
    """The formula, with the mean of all values in rows that see nothing if that is what they have."""
    mean = replace(rows, uniform=True)
    due: Any = mean.output[empty]
    is_mean = found.any() and (np.abs(found - due.value) <= 2 * due.error).all()
    return mean if is_mean else rows


def _goes_through(rows: FurtherRows, empty: Bool[np.ndarray, "B H L"], answer: Answer) -> bool:
    """Whether a gradient goes through the weights of such means: dQ of theirs is not 0, or dK is not without it."""
    dq, dk = answer.query_gradient, answer.key_gradient
    if dq is not None and dq[empty].any():
        return True
    return dk is not None and same("", dk, rows.key_gradient).verdict is Verdict.FALSIFIED


def _differentiates_log_zero(rows: FurtherRows) -> bool:
    """Whether a log-sum-exp of rows that see nothing has an upstream gradient, if only of 0: log 0 has no derivative,
    and what a kernel makes of it may be 0/0.
    """
    return rows.call.lse_upstream is not None and rows.call.sinks is None


def groups_of_nan(rows: FurtherRows, output: Float64[np.ndarray, "B H L M"]) -> Bool[np.ndarray, "B G"]:
    """The groups with a row that sees nothing and is NaN, or whose log-sum-exp, −∞, is differentiated."""
    sizes = rows.call.sizes
    there = rows.empty & ~rows.call.absent & (np.isnan(output).all(axis=-1) | _differentiates_log_zero(rows))
    return np.asarray(there.reshape(sizes["B"], sizes["G"], -1).any(axis=-1))


def claimed_gradients(
    rows: FurtherRows, answer: Answer, of_nan: Bool[np.ndarray, "B G"]
) -> Mapping[str, Bool[np.ndarray, "..."]]:
    """The entries of which something is claimed, by their name in an answer: beside rows of NaN each entry of dK and dV
    of their group is NaN, or what is due; no gradient goes to dK where their dQ is 0, and none of NaN to other rows.
    """
    if not of_nan.any():
        return {}
    found = {"query_gradient": np.broadcast_to(~rows.empty[..., None], rows.call.query.shape)}
    dq = answer.query_gradient
    alone = dq is not None and rows.empty.any() and not dq[rows.empty].any()
    for name in ("value_gradient",) if alone else ("key_gradient", "value_gradient"):
        theirs = getattr(answer, name)
        if theirs is not None:
            found[name] = ~(of_nan[..., None, None] & np.isnan(theirs))
    return found
