"""A failing call of a kernel as it happened: which claims are falsified, by which calls, in which entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float64

from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.claims.examination import BIAS_GRADIENT, DROPPED, SINK_GRADIENT, WEIGHTS
from generators.attention_call import AttentionCall
from theorems.core.on_kernel import Answer


@dataclass(frozen=True)
class Quantity:
    """Numbers that a kernel returns.

    Attributes:
        name: in :class:`theorems.rounding.further_rows.FurtherRows`.
        symbol: for a reader.
        axes: of its entries.
    """

    name: str
    symbol: str
    axes: str

    def of_answer(self, answer: Answer) -> Any:
        """What the kernel returned of it."""
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
"""By the claim that is about them."""


@dataclass(frozen=True, eq=False)
class Entry:
    """Numbers of which one at least is wrong.

    Attributes:
        claim: that says so.
        call: what the numbers that are due belong to.
        what: which numbers they are.
        theirs, due, allowed: the kernel's, the formula's, and how far they may be apart.
    """

    claim: str
    call: AttentionCall
    what: Quantity
    theirs: Float64[np.ndarray, "..."]
    due: Float64[np.ndarray, "..."]
    allowed: Float64[np.ndarray, "..."]

    @property
    def is_off(self) -> bool:
        """Whether one is wrong, or no number."""
        with np.errstate(invalid="ignore"):
            return not bool((np.abs(self.theirs - self.due) <= self.allowed).all())

    @property
    def worst(self) -> tuple[int, ...]:
        """Of the wrong entries the one that is furthest off; the first that is no number."""
        with np.errstate(invalid="ignore"):
            off = np.abs(self.theirs - self.due)
            off = np.where(np.isfinite(self.theirs), np.where(off > self.allowed, off, -1.0), np.inf)
        return tuple(int(k) for k in np.unravel_index(int(np.argmax(off)), off.shape))


@dataclass(frozen=True, eq=False)
class Trace:
    """Calls of a kernel by which a capability is falsified.

    Attributes:
        capability: without ``kernel-``.
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        calls, answers: up to the one that falsifies; no answer to one that was refused.
        falsified: names of claims.
        entries: of each that is about numbers that are due.
        rows: the formula on that call, a :class:`theorems.rounding.further_rows.FurtherRows`, under the conventions
            that the kernel follows.
        drawn: lines of a test that make tensors, by name; of others their numbers are written down.
    """

    capability: str
    kernel: Any
    calls: tuple[AttentionCall, ...]
    answers: tuple[Answer | None, ...]
    falsified: tuple[str, ...]
    entries: tuple[Entry, ...]
    rows: Any = None
    drawn: Mapping[str, str] = field(default_factory=dict)

    @property
    def call(self) -> AttentionCall:
        """The one that falsifies."""
        return self.calls[-1]

    @property
    def answer(self) -> Answer:
        """To it."""
        answer = self.answers[-1]
        assert answer is not None
        return answer

    def replace(self, **changed: Any) -> Trace:
        """The same with something replaced."""
        return replace(self, **changed)
