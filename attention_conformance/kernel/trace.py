"""The record of a failure of a kernel: the falsified claims, the call that falsifies them, and the wrong numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attention_conformance.calls.answer import Answer
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.claims.call_claims import BIAS_GRADIENT, DROPPED, SINK_GRADIENT, WEIGHTS
from attention_conformance.claims.empty_rows import claimed_gradients, groups_of_nan

BEYOND = 1e300
"""The allowed error where rounding may lose all digits, so that every number is accepted, but not NaN."""


@dataclass(frozen=True)
class Quantity:
    """A quantity that a kernel returns, such as the output or a gradient.

    Attributes:
        name: the quantity's attribute in :class:`attention_conformance.calls.further_rows.FurtherRows`.
        symbol: the quantity's symbol in reports.
        axes: a letter for each axis of the quantity: b batch entry, h head, g head of keys, l query, t key, e column of
            queries and keys, m column of values.
    """

    name: str
    symbol: str
    axes: str

    def of_answer(self, answer: Answer) -> Any:
        """Return the numbers of an answer for the quantity."""
        return getattr(answer, "weights" if self.name == "returned_weights" else self.name)


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        OUTPUT: Quantity("output", "output", "bhlm"),
        GRADIENTS[0]: Quantity("query_gradient", "dQ", "bhle"),
        GRADIENTS[1]: Quantity("key_gradient", "dK", "bgte"),
        GRADIENTS[2]: Quantity("value_gradient", "dV", "bgtm"),
        "log-sum-exp": Quantity("log_sum_exp", "log-sum-exp", "bhl"),
        SINK_GRADIENT: Quantity("sink_gradient", "dσ", "h"),
        BIAS_GRADIENT: Quantity("bias_gradient", "db", "bhlt"),
        WEIGHTS: Quantity("returned_weights", "weights", "bhlt"),
        DROPPED: Quantity("output", "output", "bhlm"),
    }
)
"""For each claim that compares results with correct numbers, by its name, the quantity that it compares."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A kernel's numbers for one quantity in a call, and the correct numbers.

    Attributes:
        claim: the name of the claim that compares the numbers.
        call: the call for which the kernel computed the numbers.
        what: the quantity.
        theirs, due, allowed: the kernel's numbers, the correct numbers, and their largest allowed differences.
    """

    claim: str
    call: AttentionCall
    what: Quantity
    theirs: Float64[np.ndarray, "..."]
    due: Float64[np.ndarray, "..."]
    allowed: Float64[np.ndarray, "..."]

    @property
    def off(self) -> Bool[np.ndarray, "..."]:
        """A boolean mask of the kernel's numbers, True where a number is wrong or NaN."""
        with np.errstate(invalid="ignore"):
            return np.asarray(~(np.abs(self.theirs - self.due) <= self.allowed))

    @property
    def is_off(self) -> bool:
        """Return whether any of the kernel's numbers is wrong or NaN."""
        return bool(self.off.any())

    @property
    def worst(self) -> tuple[int, ...]:
        """The index of the first number that is not finite, or else of the number with the largest error."""
        with np.errstate(invalid="ignore"):
            off = np.abs(self.theirs - self.due)
            off = np.where(np.isfinite(self.theirs), np.where(off > self.allowed, off, -1.0), np.inf)
        return tuple(int(k) for k in np.unravel_index(int(np.argmax(off)), off.shape))

    def describe(self, cause: str = "rounding") -> str:
        """Return a text on the worst number: its index, the correct number, and the ratio of error to allowed error."""
        at = self.worst
        axes = ", ".join(self.what.axes[-len(at) :])
        place = ", ".join(map(str, at))
        theirs, expected, allowed = self.theirs[at], self.due[at], self.allowed[at]
        times = abs(theirs - expected) / allowed if allowed > 0 else math.inf
        off = f"{times:.2g} times what {cause} allows" if math.isfinite(times) else "where nothing is rounded"
        if not math.isfinite(theirs):
            off = "a number is due"
        return f"{self.what.symbol} at ({axes}) = ({place}) is {theirs:.6g} where {expected:.6g} is due, {off}"


def entry_of(claim: str, rows: FurtherRows, answer: Answer) -> Entry:
    """Return the numbers in a kernel's answer that a claim compares, and the correct numbers, which ``rows`` has."""
    quantity = QUANTITIES[claim]
    of_rows = "returned_weights_after_dropout" if claim == WEIGHTS and rows.call.dropout else quantity.name
    expected, theirs = getattr(rows, of_rows), np.asarray(quantity.of_answer(answer))
    allowed = 2 * np.where(np.isfinite(expected.error), expected.error, BEYOND)
    is_claimed = claimed_gradients(rows, answer, groups_of_nan(rows, answer.output)).get(quantity.name)
    claimed = _where_claimed(quantity, rows, expected)
    if is_claimed is not None:
        claimed = claimed & is_claimed
    theirs, allowed = np.where(claimed, theirs, expected.value), np.where(claimed, allowed, np.inf)
    return Entry(claim, rows.call, quantity, theirs, expected.value, allowed)


def _where_claimed(quantity: Quantity, rows: FurtherRows, expected: Any) -> Bool[np.ndarray, "..."]:
    """Return a boolean mask of the entries of a quantity that claims compare.

    Claims do not compare rows that see no key, gradients of bias entries that are −∞, or gradients too large for the
    number format.
    """
    if quantity.name in ("output", "log_sum_exp", "returned_weights"):
        return np.asarray(~rows.empty.reshape(rows.empty.shape + (1,) * (expected.ndim - 3)))
    if quantity.name == "bias_gradient":
        bias: Any = rows.call.bias
        return np.asarray(~np.isneginf(bias))
    fits = np.abs(expected.value) < (rows.stored or rows.numbers).largest / 2
    return np.asarray(fits | (quantity.name == "sink_gradient"))


@dataclass(frozen=True, eq=False)
class Trace:
    """A call of a kernel by which it fails a capability.

    Attributes:
        capability: the name of the capability, without ``kernel-``.
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        call: the call that falsifies a claim.
        answer: the kernel's answer to the call; None if the kernel refused it.
        falsified: the names of the claims that the call falsifies.
        entries: the kernel's and the correct numbers for each of these claims that compares them.
        rows: the correct results of the call under the conventions that the kernel follows, a
            :class:`attention_conformance.calls.further_rows.FurtherRows`; None if no results are compared.
    """

    capability: str
    kernel: Any
    call: AttentionCall
    answer: Answer | None
    falsified: tuple[str, ...]
    entries: tuple[Entry, ...]
    rows: Any = None
