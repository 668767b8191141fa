"""Recorded evidence for a report: counterexamples to statements without an assumption, and tables of planted faults.

The evidence is read from files; ``theorems list counterexamples`` and ``theorems power`` compute it anew. The
counterexamples are in the repository; the tables of faults are in a folder that git ignores, to which ``make records``
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from max_margin_theorems.papers import papers
from reference_attention.files import read_named_values
from theorems.core.recorded_files import RECORDED
from theorems.core.statement import Statement
from theorems.counterexamples.assumption_table import Status
from theorems.counterexamples.weakened_statements import droppable
from theorems.faults import fault_named
from theorems.faults.power.power_tables import short
from theorems.run.registry.suite import folder_of, statements

COUNTEREXAMPLES = Path("counterexamples")
RECORDS = Path("build/records")
"""Folder to which ``make records`` writes the tables of planted faults."""
POWER = "power*.md"
"""Pattern of the names of the files with tables of planted faults, in :data:`RECORDS` and in the folders of papers'
records."""
UNTOUCHED = ("", "…")
"""Cells of a table of faults if the statement does not call the faulty function, or was not checked with the fault."""


@dataclass(frozen=True)
class HuntRecord:
    """Assumptions of a statement, grouped by what is recorded about the statement without each of them."""

    id: str
    by_status: dict[Status, list[str]] = field(default_factory=dict)


def hunt_records(chosen: Iterable[Statement], root: Path = RECORDED) -> list[HuntRecord] | None:
    """Return a record per statement outside users' files; None if there is no folder of counterexamples.

    Raises:
        InvalidInput: a file in the folder cannot be read.
    """
    if not (root / COUNTEREXAMPLES).is_dir():
        return None
    records = []
    for statement in chosen:
        if statement.file:
            continue
        record = HuntRecord(statement.id)
        for without in droppable(statement):
            status = status_of(folder_of(statement, root / COUNTEREXAMPLES), statement, without)
            record.by_status.setdefault(status, []).append(without)
        records.append(record)
    return records


def status_of(directory: Path, statement: Statement, without: str) -> Status:
    """Return what is recorded about a statement without an assumption (refuted or not, …), without replaying it."""
    if without in statement.needs:
        return Status.NEEDED
    path = directory / f"{statement.id}-without-{without}.json"
    if not path.exists():
        return Status.HOLE
    return Status.NONE_FOUND if "none_found" in read_named_values(path) else Status.REFUTED


@dataclass(frozen=True)
class Power:
    """Numbers of planted faults and of the statements that catch them.

    Attributes:
        faults: the number of planted faults.
        caught: the number of faults that at least one statement catches.
        by_kind: by kind of fault and id of a statement, two numbers: how many faults of this kind the statement
            catches, and how many lie in functions that the statement calls.
    """

    faults: int
    caught: int
    by_kind: dict[str, dict[str, tuple[int, int]]]


def power(chosen: Iterable[Statement], root: Path = RECORDED) -> Power | None:
    """Return how many planted faults the statements catch, read from the recorded tables; None if there is no table."""
    chosen_ids = {statement.id for statement in chosen if not statement.file}
    table = signs(root)
    if table is None:
        return None
    by_kind: dict[str, dict[str, tuple[int, int]]] = {}
    for fault, row in table.items():
        counts = by_kind.setdefault(fault_named(fault).kind, {})
        for id, sign in row.items():
            if id in chosen_ids and sign not in UNTOUCHED:
                caught, faced = counts.get(id, (0, 0))
                counts[id] = caught + is_caught(sign), faced + 1
    return Power(len(table), sum(any(map(is_caught, row.values())) for row in table.values()), by_kind)


def signs(root: Path = RECORDED) -> dict[str, dict[str, str]] | None:
    """Return the cells of the recorded tables, by fault and then by statement; None if there is no table."""
    folders = [root / RECORDS, *(paper.recorded for paper in papers() if paper.recorded)]
    tables = [table for folder in folders for path in sorted(folder.glob(POWER)) for table in _tables(path)]
    by_fault: dict[str, dict[str, str]] = {}
    for table in tables:
        for fault, row in table.items():
            by_fault[fault] = by_fault.get(fault, {}) | row
    return by_fault or None


def _tables(path: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Yield the table in a document, with its cells by fault and then by statement; or nothing if it has none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    begin = next((k for k, line in enumerate(lines) if line.startswith("| fault | in |")), None)
    if begin is not None:
        # The heads of the columns are abbreviated ids. If two abbreviations are equal, the first id counts, so that a
        # later paper cannot take a column of an earlier paper.
        ids = {short(id): id for id in reversed(statements())}
        heads = [ids.get(head, head) for head in _cells(lines[begin])[2:]]
        rows = map(_cells, takewhile(lambda line: line.startswith("|"), lines[begin + 2 :]))
        yield {row[0].strip("`"): dict(zip(heads, row[2:], strict=True)) for row in rows}


def is_caught(sign: str) -> bool:
    """Return whether a cell says that the fault was caught: it is then the number of the example that caught it."""
    return re.fullmatch(r"\d+", sign) is not None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]
