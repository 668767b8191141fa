"""The table statement × assumption: what goes wrong without it, from the folder of counterexamples.

Every file is replayed from its data before it is listed; a pair without a file is a hole, and is called one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.core.recorded_files import COUNTEREXAMPLES
from theorems.core.statement import Statement
from theorems.hunting.entries import droppable, entries
from theorems.hunting.examine import Examined, examine, in_own_units
from theorems.hunting.record import Record, load, read
from theorems.run.registry.suite import folder_of, statements


class Status(StrEnum):
    """What is known of a statement without an assumption."""

    REFUTED = "refuted"
    NONE_FOUND = "none found"
    NEEDED = "needed to state it"
    DOES_NOT_REPLAY = "does not replay"
    HOLE = "not hunted"


@dataclass(frozen=True)
class Row:
    """A statement without one of its assumptions.

    Attributes:
        statement, without: ids.
        status: what is known.
        said: the violated claim in numbers, the effort, or the reason.
        why: the mechanism.
        shape: (n, T, d) of the counterexample, or what else tells how large it is.
        file: its name.
    """

    statement: str
    without: str
    status: Status
    said: str = ""
    why: str = ""
    shape: tuple[int, ...] | None = None
    file: str = ""

    @property
    def id(self) -> str:
        """Of the pair."""
        return f"{self.statement} without {self.without}"

    @property
    def summary(self) -> str:
        """For a line of progress."""
        return str(self.status)


@dataclass(frozen=True)
class Pair:
    """A statement without one of its assumptions, to be looked up in a folder."""

    directory: Path
    statement: str
    without: str

    @property
    def id(self) -> str:
        """Both names."""
        return f"{self.statement} without {self.without}"

    @property
    def total(self) -> int | None:
        """A replay is one step."""
        return 1

    def run(self, progress: Callable[[int], None]) -> Row:
        """The row.

        Raises:
            InvalidInput: a file that cannot be read.
        """
        return _row(self.directory, statements()[self.statement], self.without)

    def unfinished_result(self, why: str) -> Row:
        """A row that replays nothing."""
        return Row(self.statement, self.without, Status.DOES_NOT_REPLAY, why or "interrupted")


def pairs() -> list[tuple[Statement, str]]:
    """Every statement with every assumption that can be left out."""
    return [(s, without) for s in statements().values() for without in droppable(s)]


def pairs_in(directory: Path | None = None) -> list[Pair]:
    """Every pair, in the statements' order, to be looked up in a folder, or where each paper has recorded its own.

    Raises:
        InvalidInput: no such directory, or a file in it that cannot be read.
    """
    if not (directory or COUNTEREXAMPLES).is_dir():
        raise InvalidInput(f"{directory or COUNTEREXAMPLES}: is no directory; give the folder of counterexamples.")
    found = [Pair(directory or folder_of(statement), statement.id, without) for statement, without in pairs()]
    for pair in found:
        path = _path(pair.directory, pair.statement, pair.without)
        if path.exists():
            read(path)
    return found


def _path(directory: Path, statement: str, without: str) -> Path:
    return directory / f"{statement}-without-{without}.json"


def _row(directory: Path, statement: Statement, without: str) -> Row:
    path = _path(directory, statement.id, without)
    needed = statement.needs.get(without)
    if needed is not None:
        return Row(statement.id, without, Status.NEEDED, needed)
    if not path.exists():
        return Row(statement.id, without, Status.HOLE)
    held = read(path)
    if "none_found" in held:
        effort = held["none_found"]
        met = f", on {effort['met']} of which it fails and the others hold" if "met" in effort else ""
        said = f"{effort['cases']} cases{met}, seed {held['seed']}"
        entry = entries().get((statement.id, without))
        why = entry.why if entry else str(held.get("why", ""))
        return Row(statement.id, without, Status.NONE_FOUND, said, " ".join(why.split()), file=path.name)
    record = load(path)
    seen = examine(record.weakened, record.case, guided=False, claim=record.claim)
    why = " ".join(record.weakened.why.split())
    if not seen.is_counterexample:
        return Row(statement.id, without, Status.DOES_NOT_REPLAY, seen.refusal, why, file=path.name)
    seen = in_own_units(record.weakened, record.case, seen)
    shape = tuple(record.case.sizes.values())
    return Row(statement.id, without, Status.REFUTED, _violation(record, seen), why, shape, path.name)


def as_json(found: list[Row]) -> list[dict[str, Any]]:
    """Everything in the table."""
    return [{**asdict(row), "status": row.status.value} for row in found]


def _violation(record: Record, seen: Examined) -> str:
    assert seen.violated is not None
    return f"{record.weakened.refutes}: {seen.violated.name}, {seen.violated.detail or seen.violated.slack}"


def markdown(found: list[Row]) -> str:
    """The table as a document."""
    lines = [
        "# Why every assumption is there",
        "",
        "Each statement without one of its assumptions: a certified counterexample (the other assumptions hold exactly,"
        " the",
        "violation is at least a hundred times its tolerance, limits are followed to norms of a million), or what was"
        " tried.",
        "`theorems counterexamples --markdown` prints this table, after replaying every file of"
        " [counterexamples](../counterexamples).",
        "Each file names the mechanism of the failure in a few sentences; `theorems replay FILE` prints it.",
        "",
        "| statement | without | | n, T, d | what fails |",
        "|---|---|---|---|---|",
    ]
    for row in found:
        shape = ", ".join(map(str, row.shape)) if row.shape else ""
        status = f"[{row.status}](../counterexamples/{row.file})" if row.file else str(row.status)
        lines.append(f"| `{row.statement}` | `{row.without}` | {status} | {shape} | {_cell(row.said)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
