"""The convention that a kernel follows in rows that see no key, which decides what can be claimed about gradients.

Softmax over no keys is not defined. A kernel follows one of three conventions, which is detected and reported: output
and gradients are zeros; the output is the mean of all values; or the output is NaN. The mean and NaN arise in one of
two ways:

- A kernel adds a number to hidden logits, which then get a gradient. If the number is finite, the result is the mean,
  and all logits get a gradient. If the number is −∞, dQ of the row is NaN, and so are dK and dV of its group, which are
  sums over the group's rows.
- A kernel replaces hidden logits by a number, as by ``masked_fill``, and they get no gradient. dQ of the row is 0, and
  dK has contributions only from the other rows. If the number is −∞, only dV is NaN, because dV is a sum with weights
  that are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attention_conformance.calls.answer import Answer
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.claims.agreement import same, same_bits
from theorems.core.claim import Claim, Verdict

EMPTY = "rows-that-see-nothing"
ZEROS, MEAN, NAN, NAN_ALONE = "zeros", "mean", "NaN", "NaN, without a gradient"
MEAN_THROUGH = "mean, with its gradient"


@dataclass(frozen=True)
class Convention:
    """The convention that a kernel follows in the rows of a call that see no key.

    Attributes:
        claim: the claim that all rows that see no key follow the convention, which ``claim.branch`` names.
        rows: the correct results of the call; rows that see no key follow the convention, with 0 in place of NaN.
    """

    claim: Claim
    rows: FurtherRows


def convention_of(rows: FurtherRows, answer: Answer) -> Convention:
    """Return the convention of a kernel, as its results on a call with rows that see no key show it."""
    empty = rows.empty & ~rows.call.absent
    output = answer.output[empty]
    rows = _with_means(rows, empty, output)
    if rows.uniform:
        rows = replace(rows, through=_goes_through(rows, empty, answer))
        claim = same(EMPTY, answer.output, rows.output, empty)
        return Convention(replace(claim, branch=MEAN_THROUGH if rows.through else MEAN), rows)
    name = NAN if np.isnan(output).all() else ZEROS
    theirs = [output.ravel()]
    expected = [np.full(output.size, 0.0 if name == ZEROS else np.nan)]
    if answer.query_gradient is not None:
        gradient = answer.query_gradient[empty].ravel()
        if name == NAN and not gradient.any():
            name = NAN_ALONE
        theirs.append(gradient)
        may_be_nan = np.isnan(gradient) & _differentiates_log_zero(rows)
        expected.append(np.where(may_be_nan | (name == NAN), np.nan, 0.0))
    return Convention(replace(same_bits(EMPTY, np.concatenate(theirs), np.concatenate(expected)), branch=name), rows)


def _with_means(
    rows: FurtherRows, empty: Bool[np.ndarray, "B H L"], output: Float64[np.ndarray, "rows M"]
) -> FurtherRows:
    """Return the correct results; rows that see no key get the mean of the values if the kernel returns this mean."""
    mean = replace(rows, uniform=True)
    expected: Any = mean.output[empty]
    is_mean = output.any() and (np.abs(output - expected.value) <= 2 * expected.error).all()
    return mean if is_mean else rows


def _goes_through(rows: FurtherRows, empty: Bool[np.ndarray, "B H L"], answer: Answer) -> bool:
    """Return whether logits in rows that see no key get a gradient: dQ is not 0 there, or dK is wrong without it."""
    dq, dk = answer.query_gradient, answer.key_gradient
    if dq is not None and dq[empty].any():
        return True
    return dk is not None and same("", dk, rows.key_gradient).verdict is Verdict.FALSIFIED


def _differentiates_log_zero(rows: FurtherRows) -> bool:
    """Return whether the log-sum-exp, log 0 in rows that see no key, is differentiated, even with upstream gradient 0.

    log 0 has no derivative, and a kernel may compute the derivative as 0/0.
    """
    return rows.call.lse_upstream is not None and rows.call.sinks is None


def groups_of_nan(rows: FurtherRows, output: Float64[np.ndarray, "B H L M"]) -> Bool[np.ndarray, "B G"]:
    """Return a mask of the groups with a row that sees no key and has NaN output or a differentiated log-sum-exp."""
    sizes = rows.call.sizes
    is_nan = rows.empty & ~rows.call.absent & (np.isnan(output).all(axis=-1) | _differentiates_log_zero(rows))
    return np.asarray(is_nan.reshape(sizes["B"], sizes["G"], -1).any(axis=-1))


def claimed_gradients(
    rows: FurtherRows, answer: Answer, of_nan: Bool[np.ndarray, "B G"]
) -> Mapping[str, Bool[np.ndarray, "..."]]:
    """Return masks of the gradient entries to compare in calls with NaN rows, by the gradient's attribute of an answer.

    NaN rows see no key and have NaN output. In their groups each entry of dK and dV may be NaN or the correct number.
    If dQ of all NaN rows is 0, no gradient goes from them to dK, so that all entries of dK are compared. dQ of other
    rows must have no NaN.
    """
    if not of_nan.any():
        return {}
    claimed = {"query_gradient": np.broadcast_to(~rows.empty[..., None], rows.call.query.shape)}
    dq = answer.query_gradient
    alone = dq is not None and rows.empty.any() and not dq[rows.empty].any()
    for name in ("value_gradient",) if alone else ("key_gradient", "value_gradient"):
        theirs = getattr(answer, name)
        if theirs is not None:
            claimed[name] = ~(of_nan[..., None, None] & np.isnan(theirs))
    return claimed
