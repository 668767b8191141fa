"""Search for a counterexample, make it small, and say how much was tried.

Rounds of Hypothesis, each from its own seed: it draws cases from the entry's strategy and climbs on the measure of
violation (``target``). The first counterexample is made small by :mod:`theorems.hunting.simplify`, which knows what a
token is: shrinking the draws takes longer, and leaves numbers that the strategy computed from them. Which one is found
depends on the seed alone; a time limit can only end a search that has found none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, target

from generators.drawing import drive, seed_from
from generators.subject import Subject
from theorems.hunting.examine import Examined, examine
from theorems.hunting.simplify import simplify_counterexample
from theorems.without.weakened import Weakened

ROUND = 400
"""Cases of one round; the next one starts afresh, so that no climb is stuck for good."""


class _SearchOver(BaseException):
    """Found, or out of time; not an Exception, so that Hypothesis passes it on at once."""


@dataclass(frozen=True)
class Observation:
    """What was seen of one case: enough for the hunt to go on without another look at it.

    Attributes:
        score: what the search climbs on.
        met, decided: as :class:`Effort` counts them.
        undecided: whether something could not be decided.
        why: what.
        counterexample: whether it is one.
        seconds: since the hunt began, in earlier processes too.
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
    """What a hunt has done so far.

    Attributes:
        tried: cases looked at, without those of shrinking.
        best: the largest measure of violation met.
        rounds: begun.
        met: cases on which the conclusion was run: the other assumptions hold, the one left out fails.
        decided: cases on which the conclusion was found to hold, by running it or by the measure of violation.
        undecided: cases that might be counterexamples, but something could not be decided.
        why_undecided: the first reason for it.
        phase: what is going on, for a progress bar.
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
        """Whether no case said anything: the conclusion raises on all of them,
        or the assumption left out always holds."""
        return self.tried > 0 and self.decided == 0


@dataclass
class Hunt:
    """A hunt under way; what it has found survives an interruption.

    Attributes:
        weakened: what is to be refuted.
        seed: drives all draws.
        seconds: after which the search gives up.
        watch: called after every case.
        found: the counterexample, the smallest so far.
        effort: how much was tried.
        finished: whether the counterexample was made as small as the hunt makes it.
        cases: at most so many are tried; None for as many as the time allows.
        known: what a process that was cut off saw of the first cases, one after the other.
        note: called with what is seen of the others.
        rounds: what was seen elsewhere of the first rounds, whole ones without a counterexample; ``known`` comes after.
        spent: seconds of that.
    """

    weakened: Weakened
    seed: int
    seconds: float
    watch: Callable[[Effort], None] = lambda effort: None
    found: Subject | None = None
    examined: Examined | None = None
    effort: Effort = field(default_factory=Effort)
    finished: bool = False
    cases: int | None = None
    known: Sequence[Observation] = ()
    note: Callable[[Observation], None] = lambda looked: None
    rounds: Sequence[Sequence[Observation]] = ()
    spent: float = 0.0
    _began: float = 0.0
    _passed: int = 0
    _claim: str = ""

    def run(self) -> None:
        """Search until a counterexample is found and small, the time is over, or ``cases`` cases were tried."""
        self._began = time.monotonic() - self.spent - (self.known[-1].seconds if self.known else 0.0)
        with suppress(_SearchOver):
            while self.found is None:
                self.effort.rounds += 1
                if self.effort.rounds <= len(self.rounds):
                    for looked in self.rounds[self.effort.rounds - 1]:
                        self._count(looked)
                else:
                    self._round()
        if self.found is not None:
            self.effort.phase = "simplifying"
            simplify_counterexample(self.found, self._still)
            self.settle()
            self.finished = True

    def look_through(self, number: int) -> None:
        """Look through one round only, and leave a counterexample as it is."""
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
            # Of a case close to a counterexample, a near copy may be one.
            near_copies=True,
        )

    def _visit(self, case: Subject) -> None:
        if self._searching(case):
            raise _SearchOver

    def _searching(self, case: Subject) -> bool:
        if self._passed >= len(self.known) and time.monotonic() - self._began > self.seconds:
            raise _SearchOver
        self._check_cases()
        looked, seen = self._look(case)
        self._count(looked)
        if looked.counterexample:
            self.found, self.examined = case, seen or examine(self.weakened, case)
            assert self.examined.violated is not None
            self._claim = self.examined.violated.name
            return True
        if math.isfinite(looked.score):
            target(looked.score)
        return False

    def _check_cases(self) -> None:
        if self.cases is not None and self.effort.tried >= self.cases:
            raise _SearchOver

    def _count(self, looked: Observation) -> None:
        self._check_cases()
        self.effort.tried += 1
        self.effort.best = max(self.effort.best, looked.score)
        self.effort.met += looked.met
        self.effort.decided += looked.decided
        if looked.undecided:
            self.effort.undecided += 1
            self.effort.why_undecided = self.effort.why_undecided or looked.why
        self.watch(self.effort)

    def _still(self, case: Subject) -> bool:
        """Whether a case is a counterexample to the same claim; it is kept if so."""
        self.effort.shrinking += 1
        self.watch(self.effort)
        looked, seen = self._look(case)
        if looked.counterexample:
            self.found, self.examined = case, seen
        return looked.counterexample

    def _look(self, case: Subject) -> tuple[Observation, Examined | None]:
        """What is seen of a case; of one that is known already without looking."""
        if self._passed < len(self.known):
            self._passed += 1
            return self.known[self._passed - 1], None
        seen = examine(self.weakened, case, claim=self._claim)
        harmless = self.weakened.violation is not None and not seen.score > 0
        decided = harmless or (seen.met and not seen.undecided)
        why = seen.refusal if seen.undecided else ""
        seconds = time.monotonic() - self._began
        looked = Observation(seen.score, seen.met, decided, seen.undecided, why, seen.is_counterexample, seconds)
        # Found first, noted then: a signal that comes with the note must find it.
        if looked.counterexample:
            self.found, self.examined = case, seen
        self.note(looked)
        return looked, seen

    def settle(self) -> None:
        """Look at the counterexample once more where only an earlier process has seen it."""
        if self.found is not None and self.examined is None:
            self.examined = examine(self.weakened, self.found, claim=self._claim)
