"""Rounds of a hunt for counterexamples as units of work: each has its own seed, so that it can run in any process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from theorems.counterexamples.search import ROUND, Hunt, Observation
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.run.registry.suite import statements
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.unit_protocols import Divisible
from theorems.run.verify import Progress

MANY = 10_000
"""Number of rounds of a hunt without a limit on cases: so many that the time limit ends it first."""


@dataclass(frozen=True)
class RoundsResult:
    """The observations of the cases of some rounds.

    Attributes:
        id: the name of the hunt.
        rounds: the observations of each round; a counterexample is the last observation of its round.
        failed: the reason why rounds are missing; empty if none are.
    """

    id: str
    rounds: tuple[tuple[Observation, ...], ...] = ()
    failed: str = ""

    @property
    def has_counterexample(self) -> bool:
        """Return whether the last round ended with a counterexample."""
        return bool(self.rounds and self.rounds[-1] and self.rounds[-1][-1].counterexample)

    def as_known(self, cases: int | None) -> tuple[Sequence[Sequence[Observation]], Sequence[Observation]]:
        """Return the rounds to count as complete, and the observations with which the next round begins.

        Args:
            cases: the largest number of cases of the hunt; None without a limit.
        """
        # A round with a counterexample is run again, because the hunt has to draw the counterexample itself; a round
        # that the limit cut short is continued.
        if self.has_counterexample or (self.rounds and cases is not None and cases < ROUND):
            return self.rounds[:-1], self.rounds[-1]
        return self.rounds, ()

    @property
    def summary(self) -> str:
        """The number of cases and rounds, and whether there is a counterexample, as a line of progress."""
        cases = sum(map(len, self.rounds))
        outcome = "a counterexample" if self.has_counterexample else "none"
        return f"{outcome} in {cases} cases, {len(self.rounds)} rounds"


@dataclass(frozen=True)
class Rounds(Divisible[RoundsResult]):
    """Rounds of a hunt as a unit of work, which can be divided into single rounds.

    Attributes:
        statement: the id of the statement.
        without: the id of the assumption left out; empty if none is.
        seed: the seed of the hunt.
        count: the number of rounds.
        cases: the largest number of cases of a round.
        part: the index, from zero, of the first of these rounds in the hunt.
    """

    statement: str
    without: str
    seed: int
    count: int
    cases: int = ROUND
    part: int = 0

    @property
    def id(self) -> str:
        """The name of the hunt: the statement, and the assumption left out."""
        return f"{self.statement} without {self.without}" if self.without else self.statement

    @property
    def foreign(self) -> bool:
        """Return whether the statement is in a user's file."""
        return is_in_a_file(self.statement)

    @property
    def total(self) -> int | None:
        """The number of steps of progress: unknown (None), since a round may end before its last case."""
        return None

    def where(self, done: int | None) -> str:
        """Return a phrase that says where a round is after ``done`` cases; ``done`` is None before the first case."""
        return "while it was loaded" if done is None else f"in round {self.part + 1}, case {done + 1}"

    def parts(self) -> Sequence[Rounds]:
        """Return units of a single round each."""
        return [self] if self.count == 1 else [replace(self, count=1, part=k) for k in range(self.count)]

    def run(self, progress: Progress) -> RoundsResult:
        """Run one round, to its end or to a counterexample."""
        observations: list[Observation] = []
        weakened = weakened_named(self.statement, self.without)
        progress(0)

        def note(observation: Observation) -> None:
            observations.append(replace(observation, seconds=0.0))
            progress(len(observations))

        Hunt(weakened, self.seed, math.inf, cases=self.cases, note=note).run_round(self.part + 1)
        return RoundsResult(self.id, (tuple(observations),))

    def unfinished_result(self, why: str) -> RoundsResult:
        """Return a result without cases for a round that failed for the reason ``why`` or was interrupted."""
        return RoundsResult(self.id, ((),), why or "interrupted")

    def join(self, first: RoundsResult, then: RoundsResult) -> RoundsResult:
        """Return the rounds of both results, in their order."""
        return RoundsResult(self.id, first.rounds + then.rounds, first.failed or then.failed)

    def last(self, result: RoundsResult) -> bool:
        """Return whether the result has a counterexample, so that later rounds are not needed."""
        return result.has_counterexample

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the fields, and import all statements now, before the time limit of the unit begins."""
        self.__dict__.update(state)
        statements()


def rounds_of(statement: str, without: str, seed: int, cases: int | None) -> Rounds:
    """Return the unit of all rounds of a hunt of ``cases`` cases; :data:`MANY` rounds if ``cases`` is None."""
    count = MANY if cases is None else -(-cases // ROUND)
    return Rounds(statement, without, seed, count, ROUND if cases is None else min(cases, ROUND))
