"""Search for a counterexample: draw cases, prefer those nearer to a violation, and simplify the first counterexample.

Hypothesis draws cases from the strategy of the weakened statement in rounds, each with its own seed, and maximises a
measure of violation (``target``). :mod:`theorems.counterexamples.simplification` then makes the first counterexample
small by changing the data themselves: their tokens and numbers. Shrinking the strategy's draws instead would take
longer and leave numbers that the strategy computed from the draws. The counterexample depends only on the seed; the
time limit only ends a search that has found none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, target

from generators.hypothesis_driver import drive, seed_from
from generators.subject import Subject
from theorems.counterexamples.check import CaseCheck, examine
from theorems.counterexamples.simplification import simplify_counterexample
from theorems.without.weakening import Weakened

ROUND = 400
"""Number of cases of a round; each round starts anew, so that no search stays in a local maximum."""


class _SearchOver(BaseException):
    """Raised when the search is over; it is no subclass of Exception, so that Hypothesis does not catch it."""


@dataclass(frozen=True)
class Observation:
    """The observation of one case; with it a resumed hunt counts the case without examining it again.

    Attributes:
        score: the measure of violation that the search maximises.
        met: whether the case counts in :attr:`Effort.met`.
        decided: whether the case counts in :attr:`Effort.decided`.
        undecided: whether an assumption or claim could not be decided.
        why: the assumption or claim that could not be decided, with the reason.
        counterexample: whether the case is a counterexample.
        seconds: seconds since the hunt began, including those of earlier processes.
    """

    score: float
    met: bool
    decided: bool
    undecided: bool
    why: str
    counterexample: bool
    seconds: float


@dataclass
class Effort:
    """The progress of a hunt: its cases, rounds and largest violation so far.

    Attributes:
        tried: the number of cases examined, except those examined to shrink the counterexample.
        best: the largest measure of violation.
        rounds: the number of rounds begun.
        met: the number of cases on which the conclusion was run, because the assumption left out fails and the others
            hold.
        decided: the number of cases decided, by running the conclusion or by the measure of violation.
        undecided: the number of cases on which an assumption or claim could not be decided.
        why_undecided: the first reason why a case is undecided.
        phase: the name of the current phase (searching or simplifying), for a progress bar.
        shrinking: the number of cases examined to shrink the counterexample.
    """

    tried: int = 0
    best: float = -math.inf
    rounds: int = 0
    met: int = 0
    decided: int = 0
    undecided: int = 0
    why_undecided: str = ""
    phase: str = "searching"
    shrinking: int = 0

    @property
    def nothing_decided(self) -> bool:
        """Return whether cases were examined, but none was decided."""
        return self.tried > 0 and self.decided == 0


@dataclass
class Hunt:
    """A hunt (search for counterexamples) and its state, from which results can be read even after an interruption.

    Attributes:
        weakened: the statement, without one of its assumptions, that is to be refuted.
        seed: the seed of all draws.
        seconds: the time limit of the search, in seconds.
        watch: a function that is called with ``effort`` after every case.
        found: the smallest counterexample so far; None if there is none.
        examined: the outcome of the check of ``found``.
        effort: what was tried so far.
        finished: whether a counterexample was found and completely shrunk.
        cases: the largest number of cases; None for as many as the time allows.
        known: the observations of the first cases, made by an earlier process that was interrupted.
        note: a function that is called with the observation of each case that is not in ``known``.
        rounds: observations of complete rounds without a counterexample, made by other processes; the cases in
            ``known`` come after these rounds.
        spent: the seconds that those rounds took.
    """

    weakened: Weakened
    seed: int
    seconds: float
    watch: Callable[[Effort], None] = lambda effort: None
    found: Subject | None = None
    examined: CaseCheck | None = None
    effort: Effort = field(default_factory=Effort)
    finished: bool = False
    cases: int | None = None
    known: Sequence[Observation] = ()
    note: Callable[[Observation], None] = lambda observation: None
    rounds: Sequence[Sequence[Observation]] = ()
    spent: float = 0.0
    _began: float = 0.0
    _passed: int = 0
    _claim: str = ""

    def run(self) -> None:
        """Search until a counterexample is found and shrunk, the time is over, or ``cases`` cases are examined."""
        self._began = time.monotonic() - self.spent - (self.known[-1].seconds if self.known else 0.0)
        with suppress(_SearchOver):
            while self.found is None:
                self.effort.rounds += 1
                if self.effort.rounds <= len(self.rounds):
                    for observation in self.rounds[self.effort.rounds - 1]:
                        self._count(observation)
                else:
                    self._round()
        if self.found is not None:
            self.effort.phase = "simplifying"
            simplify_counterexample(self.found, self._still)
            self.settle()
            self.finished = True

    def run_round(self, number: int) -> None:
        """Run the round with the given number, without shrinking a counterexample."""
        self._began = time.monotonic()
        self.effort.rounds = number
        with suppress(_SearchOver):
            self._round()

    def _round(self) -> None:
        drive(
            self.weakened.cases(),
            self._visit,
            examples=ROUND,
            seed=seed_from(f"hunt {self.weakened.name} {self.seed} {self.effort.rounds}"),
            phases=(Phase.generate, Phase.target),
            unchecked=tuple(HealthCheck),
            # Small changes of a case that is nearly a counterexample may lead to one.
            near_copies=True,
        )

    def _visit(self, case: Subject) -> None:
        if self._searching(case):
            raise _SearchOver

    def _searching(self, case: Subject) -> bool:
        if self._passed >= len(self.known) and time.monotonic() - self._began > self.seconds:
            raise _SearchOver
        self._check_cases()
        observation, examined = self._observe(case)
        self._count(observation)
        if observation.counterexample:
            self.found, self.examined = case, examined or examine(self.weakened, case)
            assert self.examined.violated is not None
            self._claim = self.examined.violated.name
            return True
        if math.isfinite(observation.score):
            target(observation.score)
        return False

    def _check_cases(self) -> None:
        if self.cases is not None and self.effort.tried >= self.cases:
            raise _SearchOver

    def _count(self, observation: Observation) -> None:
        self._check_cases()
        self.effort.tried += 1
        self.effort.best = max(self.effort.best, observation.score)
        self.effort.met += observation.met
        self.effort.decided += observation.decided
        if observation.undecided:
            self.effort.undecided += 1
            self.effort.why_undecided = self.effort.why_undecided or observation.why
        self.watch(self.effort)

    def _still(self, case: Subject) -> bool:
        """Return whether a simpler case is a counterexample to the same claim; if so, store the case."""
        self.effort.shrinking += 1
        self.watch(self.effort)
        observation, examined = self._observe(case)
        if observation.counterexample:
            self.found, self.examined = case, examined
        return observation.counterexample

    def _observe(self, case: Subject) -> tuple[Observation, CaseCheck | None]:
        """Return the observation of a case, and its check, which is None if the observation is from ``known``."""
        if self._passed < len(self.known):
            self._passed += 1
            return self.known[self._passed - 1], None
        examined = examine(self.weakened, case, claim=self._claim)
        harmless = self.weakened.violation is not None and not examined.score > 0
        decided = harmless or (examined.met and not examined.undecided)
        why = examined.refusal if examined.undecided else ""
        seconds = time.monotonic() - self._began
        observation = Observation(
            examined.score, examined.met, decided, examined.undecided, why, examined.is_counterexample, seconds
        )
        # Store the counterexample before reporting its observation: a signal that arrives in between must not lose it.
        if observation.counterexample:
            self.found, self.examined = case, examined
        self.note(observation)
        return observation, examined

    def settle(self) -> None:
        """Examine the counterexample if that was done only by an earlier process."""
        if self.found is not None and self.examined is None:
            self.examined = examine(self.weakened, self.found, claim=self._claim)
