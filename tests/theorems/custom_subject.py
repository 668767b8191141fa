"""A paper with data other than keys and scores: logits with multiplicities, and their log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from jaxtyping import Float64, Int64

from generators.finding import Assumption, Finding
from generators.subject import Subject
from reference_attention.errors import InvalidInput
from reference_attention.floats import EPS
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import Statement, statement
from theorems.faults.fault import Fault, Kind


@dataclass(frozen=True, eq=False)
class Logits(Subject, kind="test-logits", noun="logits"):
    """Logits h with their multiplicities."""

    values: Float64[np.ndarray, "m"]
    counts: Int64[np.ndarray, "m"]
    shift: float = 0.0
    arrays: Mapping[str, Float64[np.ndarray, "..."]] = field(default_factory=lambda: MappingProxyType({}))
    start: Float64[np.ndarray, "d"] | None = None
    seed: int = 0
    name: str = "generated"

    def __post_init__(self) -> None:
        if self.values.shape != self.counts.shape:
            raise InvalidInput(f"counts: shape {self.counts.shape} is not that of values, {self.values.shape}.")

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"m": len(self.values)}

    def explain(self) -> list[str]:
        return [f"The largest of {len(self.values)} logits is {self.values.max():g}."]

    def simpler(self) -> Iterator[Logits]:
        for k in range(len(self.values) if len(self.values) > 1 else 0):
            yield self.replace(values=np.delete(self.values, k), counts=np.delete(self.counts, k))
        if self.values.any():
            yield self.replace(values=np.zeros_like(self.values))


@st.composite
def logits(draw: st.DrawFn, least: int = 0) -> Logits:
    """Draw one to six small whole numbers, each with a multiplicity of up to three."""
    values = draw(st.lists(st.integers(-3, 3), min_size=1, max_size=6))
    counts = draw(st.lists(st.integers(1, 3), min_size=len(values), max_size=len(values)))
    return Logits(np.array(values, dtype=np.float64), np.array(counts), seed=draw(st.integers(0, 9)))


def log_sum_exp(values: Float64[np.ndarray, "m"], counts: Int64[np.ndarray, "m"]) -> float:
    """Return log Σ c e^h."""
    return float(np.log(np.sum(counts * np.exp(values))))


def without_counts(values: Float64[np.ndarray, "m"], counts: Int64[np.ndarray, "m"]) -> float:
    """Return the log-sum-exp in which every logit counts once, whatever its multiplicity."""
    return log_sum_exp(values, np.ones_like(counts))


def _single(case: Logits) -> Finding:
    return Finding(bool((case.counts == 1).all()), f"counts {case.counts.tolist()}")


SINGLE = Assumption("each-once", "every logit is there once", "own", _single)


@statement("test-lse", "log-sum-exp with multiplicities", cases=logits, about=Logits)
def true_one(case: Logits, under_test: Implementation) -> Iterator[Claim]:
    """Claim that log Σ c e^h ≥ log Σ c + min h for logits h with multiplicities c."""
    computed = under_test[log_sum_exp](case.values, case.counts)
    least = math.log(case.counts.sum()) + case.values.min()
    yield at_least("lower", Form.EXACT, computed, least, rounding=64 * EPS, why="rounding")


@statement("test-small", "there are few", cases=logits, assumptions=(SINGLE,), about=Logits)
def false_one(case: Logits, under_test: Implementation) -> Iterator[Claim]:
    """Claim that there are at most three logits, counted with multiplicities."""
    yield at_least("few", Form.EXACT, 3.0, float(case.counts.sum()), rounding=0.0, why="rounding")


@dataclass(frozen=True)
class Uncounted:
    """Function of a fault's size, which is ignored: return an implementation in which every logit counts once."""

    def __call__(self, size: float) -> Implementation:
        return REFERENCE.replace("", {log_sum_exp: without_counts})


FAULT = Fault("counts-forgotten", Kind.DATA, "c = 1", "test-lse", Uncounted())
SPOILED = Fault(
    "logits-off", Kind.DATA, "h + 1", "test-lse", lambda size: REFERENCE, spoil=lambda c: c.replace(counts=2 * c.counts)
)
STATEMENTS: dict[str, Statement] = {statement.id: statement for statement in (true_one, false_one)}
