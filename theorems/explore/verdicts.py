"""Verdicts of ``theorems verify --data`` on the data of the page, statement by statement, in another process.

If exactly one assumption of a statement fails, the statement without this assumption is examined, too, as by ``theorems
replay``: if the conclusion fails on the data, the assumption is needed. Results are delivered as they come; work for
earlier data is stopped.
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
"""The verdict on a statement without one assumption if its claims are undecided."""
PATIENT = 1.0
"""Seconds that a statement on earlier data may still take before its process is ended."""


@dataclass(frozen=True)
class StatementVerdict:
    """Verdict on a statement, or on a statement without an assumption.

    Attributes:
        id: the id of the statement.
        without: the assumption that is left out; empty if none is.
        verdict: a :class:`Verdict`; for a statement without an assumption, ``fails``, ``holds`` or :data:`OPEN`.
        tightest: the claim that is nearest to failing, or that failed.
        because: the reason for the verdict; empty if it is upheld.
        left_open: conclusions that the statement does not claim for these data, each with the data for which it is
            claimed.
    """

    id: str
    without: str
    verdict: str
    tightest: str
    because: str
    left_open: str = ""

    @property
    def summary(self) -> str:
        """Return the verdict."""
        return self.verdict


@dataclass(frozen=True)
class StatementOnData:
    """The unit of work that verifies a statement on the data, or examines it without one assumption.

    Attributes:
        id: the id of the statement.
        given: the data.
        without: the assumption that is left out; empty if none is.
    """

    id: str
    given: Given
    without: str = ""

    @property
    def total(self) -> int:
        """Return the number of steps: one."""
        return 1

    def prepare(self) -> None:
        """Import the statements, outside the measured time of the unit."""
        statements()

    def run(self, progress: Progress) -> StatementVerdict:
        """Verify the statement, or examine it without the assumption."""
        if self.without:
            return _without(self.id, self.without, self.given.case)
        (result,) = Session(Request((self.id,), given=self.given)).finish().results
        tightest = "" if result.tightest is None else result.tightest.nearness
        left_open = _left_open(self.id, result) if result.verdict is Verdict.UPHELD else ""
        return StatementVerdict(self.id, "", result.verdict_in_words, tightest, result.complaint, left_open)

    def unfinished_result(self, why: str) -> StatementVerdict:
        """Return an inconclusive verdict."""
        return StatementVerdict(self.id, self.without, str(Verdict.INCONCLUSIVE), "", why or "interrupted")


def _left_open(id: str, result: Result) -> str:
    """Return the conclusions that the statement claims for other data only, such as a direction for n = 1."""
    statement, claimed = statement_named(id), {claim.name for claim in result.claims}
    return ", ".join(
        f"{name} (drawn for {statement.claims[name]})"
        for name in statement.states or ()
        if name not in claimed and statement.claims[name] != ALWAYS
    )


def _without(id: str, without: str, case: Case) -> StatementVerdict:
    weakened = weakened_named(id, without)
    examined = examine(weakened, case, guided=False)
    if examined.violated is not None:
        why = " ".join(weakened.why.split())
        return StatementVerdict(
            id, without, "fails", sentence(examined.violated), f"refutes: {weakened.refutes}. {why}"
        )
    return StatementVerdict(id, without, OPEN if examined.undecided else "holds", "", examined.refusal)


def assumptions_of(case: Case) -> list[NamedFinding]:
    """Check the assumptions of all statements about this kind of data; return findings with the deciding numbers."""
    with np.errstate(all="ignore"):  # searches for refuting prompts may overflow
        return findings(Given(case), select_statements((), subject=case))


def plan(case: Case) -> list[StatementOnData]:
    """Return a unit per statement about this kind of data; if one assumption alone fails, also one without it."""
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
    """Return whether the assumption fails on the data, while all others that a counterexample must satisfy hold."""
    weakened = weakened_named(id, without)
    if weakened.fails(case).holds is not False:
        return False
    return all(weakened.statement.assumption(id_kept).check(case).holds for id_kept in weakened.keeps)


def work_through(
    pool: Pool, units: list[StatementOnData], cancelled: Callable[[], bool]
) -> Iterator[list[tuple[int, StatementVerdict]]]:
    """Yield lists of (number, result) as units are finished, until all are finished or ``cancelled()`` is true.

    After cancellation a running unit has :data:`PATIENT` seconds before its process is ended.
    """
    ready: list[tuple[int, StatementVerdict]] = []

    def tell(number: int, word: str, value: object) -> None:
        if word == "finished":
            assert isinstance(value, StatementVerdict)
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
