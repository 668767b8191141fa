"""Verdicts on the data, as ``theorems verify --data`` finds them, statement by statement, in another process.

A statement that is left without one assumption, which fails here, is tried too, as ``theorems replay`` does: its
failure shows why the assumption is there. Results are passed on as they come, and nobody waits for what is no longer
asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from generators.case import Case
from generators.user_data import Given
from theorems.core.check import sentence
from theorems.core.claim import Verdict
from theorems.core.claim_name import ALWAYS
from theorems.counterexamples.check import examine
from theorems.counterexamples.weakened_statements import droppable, weakened_named
from theorems.run.encoding import decoding
from theorems.run.findings import NamedFinding, findings
from theorems.run.pool import Pool
from theorems.run.registry.lookup import select_statements, statement_named
from theorems.run.registry.suite import statements
from theorems.run.result import Result
from theorems.run.session import Request, Session
from theorems.run.verify import Progress

OPEN = "open"
"""The verdict where a statement without an assumption is undecided: its own claims say nothing there."""
PATIENT = 1.0
"""Seconds for which a statement on earlier data may go on; a process that takes longer is ended."""


@dataclass(frozen=True)
class Said:
    """Verdict on a statement, or on a statement without an assumption.

    Attributes:
        id: the id of the statement.
        without: the assumption that is left out; empty if none is.
        verdict: in the suite's words; for a statement without an assumption, ``fails``, ``holds`` or :data:`OPEN`.
        tightest: the claim that is nearest to failing, or that failed.
        because: why it is not plainly upheld.
        left_open: conclusions of the statement that it does not draw on such data, and where it does.
    """

    id: str
    without: str
    verdict: str
    tightest: str
    because: str
    left_open: str = ""

    @property
    def summary(self) -> str:
        """Return the verdict in a word."""
        return self.verdict


@dataclass(frozen=True)
class StatementOnData:
    """One statement on the data: a unit of work, without an assumption where that fails and the others hold."""

    id: str
    given: Given
    without: str = ""

    @property
    def total(self) -> int:
        """Return the number of steps: one."""
        return 1

    def prepare(self) -> None:
        """Import the suite before the unit's time runs."""
        statements()

    def run(self, progress: Progress) -> Said:
        """Verify it, or examine it without the assumption."""
        if self.without:
            return _without(self.id, self.without, self.given.case)
        (result,) = Session(Request((self.id,), given=self.given)).finish().results
        tightest = "" if result.tightest is None else result.tightest.nearness
        left_open = _left_open(self.id, result) if result.verdict is Verdict.UPHELD else ""
        return Said(self.id, "", result.verdict_in_words, tightest, result.complaint, left_open)

    def unfinished_result(self, why: str) -> Said:
        """Return an inconclusive verdict."""
        return Said(self.id, self.without, str(Verdict.INCONCLUSIVE), "", why or "interrupted")


def _left_open(id: str, result: Result) -> str:
    """Return the stated conclusions that are drawn on other data only, such as that on the direction where n = 1."""
    statement, claimed = statement_named(id), {claim.name for claim in result.claims}
    return ", ".join(
        f"{name} (drawn for {statement.claims[name]})"
        for name in statement.states or ()
        if name not in claimed and statement.claims[name] != ALWAYS
    )


def _without(id: str, without: str, case: Case) -> Said:
    weakened = weakened_named(id, without)
    examined = examine(weakened, case, guided=False)
    if examined.violated is not None:
        why = " ".join(weakened.why.split())
        return Said(id, without, "fails", sentence(examined.violated), f"refutes: {weakened.refutes}. {why}")
    return Said(id, without, OPEN if examined.undecided else "holds", "", examined.refusal)


def assumptions_of(case: Case) -> list[NamedFinding]:
    """Check every assumption that a statement about such data makes, with the number that decides."""
    with np.errstate(all="ignore"):  # searches for refuting prompts go far out
        return findings(Given(case), select_statements((), subject=case))


def plan(case: Case) -> list[StatementOnData]:
    """Return a unit for every statement about such data; then for statements without an assumption that fails here."""
    data = Given(case)
    chosen = select_statements((), subject=case)
    units = [StatementOnData(statement.id, data) for statement in chosen]
    pairs = [
        (statement.id, without)
        for statement in chosen
        for without in droppable(statement)
        if without not in statement.needs
    ]
    with np.errstate(all="ignore"):
        return units + [StatementOnData(id, data, without) for id, without in pairs if _fails_alone(case, id, without)]


def _fails_alone(case: Case, id: str, without: str) -> bool:
    """Return whether the assumption fails on the data, and all others that a counterexample must satisfy hold."""
    weakened = weakened_named(id, without)
    if weakened.fails(case).holds is not False:
        return False
    return all(weakened.statement.assumption(id_kept).check(case).holds for id_kept in weakened.keeps)


def work_through(
    pool: Pool, units: list[StatementOnData], cancelled: Callable[[], bool]
) -> Iterator[list[tuple[int, Said]]]:
    """Yield (number, result) of the units as they are finished, until all are or nobody asks any more.

    A process that still works on one then is given :data:`PATIENT` seconds, and ended.
    """
    ready: list[tuple[int, Said]] = []

    def tell(number: int, word: str, value: object) -> None:
        if word == "finished":
            assert isinstance(value, Said)
            ready.append((number, value))
        elif word in ("failed", "died"):
            ready.append((number, units[number].unfinished_result(f"the process {value}")))

    since = None
    steps = pool.work(range(len(units)), lambda k: None if cancelled() else units[k], decoding(units.__getitem__, tell))
    for _ in steps:
        if ready and not cancelled():
            yield ready.copy()
        ready.clear()
        if cancelled():
            since = since or time.monotonic()
            if time.monotonic() - since > PATIENT:
                pool.close()
                return
    if ready and not cancelled():
        yield ready.copy()
