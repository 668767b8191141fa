"""The table of counterexamples: a row for each pair of a statement and an assumption that is left out.

Every recorded counterexample is replayed from its file before it is listed; a pair without a file is listed as not
hunted, that is, not searched for counterexamples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from theorems.core.recorded_files import COUNTEREXAMPLES
from theorems.core.statement import Statement
from theorems.counterexamples.check import CaseCheck, examine, in_own_units
from theorems.counterexamples.record import Record, load, read
from theorems.counterexamples.weakened_statements import droppable
from theorems.run.registry.suite import folder_of, statements


class Status(StrEnum):
    """The result of the hunts on a statement without one of its assumptions."""

    REFUTED = "refuted"
    NONE_FOUND = "none found"
    NEEDED = "needed to state it"
    DOES_NOT_REPLAY = "does not replay"
    HOLE = "not hunted"


@dataclass(frozen=True)
class Row:
    """A row of the table: a statement with one of its assumptions left out.

    Attributes:
        statement: the id of the statement.
        without: the id of the assumption left out.
        status: whether the statement is refuted, see :class:`Status`.
        explanation: the violated claim with its numbers; without a counterexample, the number of cases tried, or the
            reason for the status.
        shape: the sizes (n, T, d) of the counterexample, or other sizes for other data; None if there is none.
    """

    statement: str
    without: str
    status: Status
    explanation: str = ""
    shape: tuple[int, ...] | None = None

    @property
    def id(self) -> str:
        """The name of the row, ``STATEMENT without ASSUMPTION``."""
        return f"{self.statement} without {self.without}"

    @property
    def summary(self) -> str:
        """The status, as a line of progress."""
        return str(self.status)


@dataclass(frozen=True)
class Pair:
    """A unit of work that replays the recorded counterexample to a statement without one of its assumptions."""

    directory: Path
    statement: str
    without: str

    @property
    def id(self) -> str:
        """The name of the unit, ``STATEMENT without ASSUMPTION``."""
        return f"{self.statement} without {self.without}"

    @property
    def total(self) -> int | None:
        """The number of steps of progress: 1."""
        return 1

    def run(self, progress: Callable[[int], None]) -> Row:
        """Replay the recorded file of this pair, if there is one, and return the row.

        Raises:
            InvalidInput: the file cannot be read.
        """
        return _row(self.directory, statements()[self.statement], self.without)

    def unfinished_result(self, why: str) -> Row:
        """Return a row with status ``DOES_NOT_REPLAY``, for a replay that failed for the reason ``why``."""
        return Row(self.statement, self.without, Status.DOES_NOT_REPLAY, why or "interrupted")


def pairs() -> list[tuple[Statement, str]]:
    """Return every pair of a statement and an assumption that can be left out of it."""
    return [(s, without) for s in statements().values() for without in droppable(s)]


def pairs_in() -> list[Pair]:
    """Return a unit of work for every pair of a statement and an assumption, in the order of the statements.

    Raises:
        InvalidInput: a recorded file cannot be read.
    """
    all_pairs = [Pair(folder_of(statement, COUNTEREXAMPLES), statement.id, without) for statement, without in pairs()]
    for pair in all_pairs:
        path = _path(pair.directory, pair.statement, pair.without)
        if path.exists():
            read(path)
    return all_pairs


def _path(directory: Path, statement: str, without: str) -> Path:
    return directory / f"{statement}-without-{without}.json"


def _row(directory: Path, statement: Statement, without: str) -> Row:
    path = _path(directory, statement.id, without)
    reason = statement.needs.get(without)
    if reason is not None:
        return Row(statement.id, without, Status.NEEDED, reason)
    if not path.exists():
        return Row(statement.id, without, Status.HOLE)
    values = read(path)
    if "none_found" in values:
        effort = values["none_found"]
        met = f", on {effort['met']} of which the assumption fails and the others hold" if "met" in effort else ""
        effort_in_words = f"{effort['cases']} cases{met}, seed {values['seed']}"
        return Row(statement.id, without, Status.NONE_FOUND, effort_in_words)
    record = load(path)
    examined = examine(record.weakened, record.case, guided=False, claim=record.claim)
    if not examined.is_counterexample:
        return Row(statement.id, without, Status.DOES_NOT_REPLAY, examined.refusal)
    examined = in_own_units(record.weakened, record.case, examined)
    shape = tuple(record.case.sizes.values())
    return Row(statement.id, without, Status.REFUTED, _violation(record, examined), shape)


def _violation(record: Record, examined: CaseCheck) -> str:
    assert examined.violated is not None
    return f"{record.weakened.refutes}: {examined.violated.name}, {examined.violated.detail or examined.violated.slack}"
