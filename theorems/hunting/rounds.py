"""A hunt in rounds, each of which can be looked through anywhere: it draws from a seed of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from theorems.hunting.entries import weakened_named
from theorems.hunting.search import ROUND, Hunt, Observation
from theorems.run.registry.suite import statements
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.verify import Progress

MANY = 10_000
"""Rounds of a hunt that is ended by its time."""


@dataclass(frozen=True)
class RoundsResult:
    """What was seen in some rounds.

    Attributes:
        id: of the hunt.
        rounds: the cases of each; one with a counterexample ends with it.
        failed: why there are no more.
    """

    id: str
    rounds: tuple[tuple[Observation, ...], ...] = ()
    failed: str = ""

    @property
    def has_counterexample(self) -> bool:
        """Whether the last one has a counterexample."""
        return bool(self.rounds and self.rounds[-1] and self.rounds[-1][-1].counterexample)

    def as_known(self, cases: int | None) -> tuple[Sequence[Sequence[Observation]], Sequence[Observation]]:
        """Whole rounds that were looked through, and the cases of the one after them, for a hunt of so many cases."""
        # A counterexample has to be drawn once more; a round that was cut short is gone on with.
        if self.has_counterexample or (self.rounds and cases is not None and cases < ROUND):
            return self.rounds[:-1], self.rounds[-1]
        return self.rounds, ()

    @property
    def summary(self) -> str:
        """For a line of progress."""
        cases = sum(map(len, self.rounds))
        found = "a counterexample" if self.has_counterexample else "none"
        return f"{found} in {cases} cases, {len(self.rounds)} rounds"


@dataclass(frozen=True)
class Rounds:
    """Rounds of a hunt; of more than one, each is a part.

    Attributes:
        count: how many.
        cases: of a round at most.
        part: the rounds before.
    """

    statement: str
    without: str
    seed: int
    count: int
    cases: int = ROUND
    part: int = 0

    @property
    def id(self) -> str:
        """Of the hunt."""
        return f"{self.statement} without {self.without}" if self.without else self.statement

    @property
    def foreign(self) -> bool:
        """Whether the statement is somebody else's code."""
        return is_in_a_file(self.statement)

    @property
    def total(self) -> int | None:
        """A round may have fewer cases than it might."""
        return None

    def where(self, done: int | None) -> str:
        """Where it is when so many cases are looked at."""
        return "while it was loaded" if done is None else f"in round {self.part + 1}, case {done + 1}"

    def parts(self) -> Sequence[Rounds]:
        """One by one."""
        return [self] if self.count == 1 else [replace(self, count=1, part=k) for k in range(self.count)]

    def run(self, progress: Progress) -> RoundsResult:
        """Look through one round, to its end or to a counterexample."""
        seen: list[Observation] = []
        weakened = weakened_named(self.statement, self.without)
        progress(0)

        def note(looked: Observation) -> None:
            seen.append(replace(looked, seconds=0.0))
            progress(len(seen))

        Hunt(weakened, self.seed, math.inf, cases=self.cases, note=note).look_through(self.part + 1)
        return RoundsResult(self.id, (tuple(seen),))

    def unfinished_result(self, why: str) -> RoundsResult:
        """A round without a case."""
        return RoundsResult(self.id, ((),), why or "interrupted")

    def join(self, first: RoundsResult, then: RoundsResult) -> RoundsResult:
        """Round after round."""
        return RoundsResult(self.id, first.rounds + then.rounds, first.failed or then.failed)

    def last(self, result: RoundsResult) -> bool:
        """The first round with a counterexample."""
        return result.has_counterexample

    def conclude(self, result: RoundsResult) -> RoundsResult:
        """As it is."""
        return result

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        statements()  # imported before its time runs


def rounds_of(statement: str, without: str, seed: int, cases: int | None) -> Rounds:
    """The rounds of a hunt; without a limit of ``cases`` more than there is time for."""
    count = MANY if cases is None else -(-cases // ROUND)
    return Rounds(statement, without, seed, count, ROUND if cases is None else min(cases, ROUND))
