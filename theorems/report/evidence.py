"""Recorded evidence for a report: counterexamples without an assumption, and tables of planted faults.

Both kinds of evidence are read from files; ``theorems list counterexamples`` and ``theorems power`` compute them again.
Counterexamples are in the repository; the tables are in a folder that git ignores, to which ``make records`` writes.
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
"""The folder to which ``make records`` writes."""
POWER = "power*.md"
"""Pattern of the files with tables of planted faults, in :data:`RECORDS` and in folders of papers' records."""
UNTOUCHED = ("", "…")
"""Cells of the tables for a statement that does not call the faulty function, or was not checked with the fault."""


@dataclass(frozen=True)
class HuntRecord:
    """The assumptions of a statement, grouped by what is recorded about the statement without each of them."""

    id: str
    by_status: dict[Status, list[str]] = field(default_factory=dict)


def hunt_records(chosen: Iterable[Statement], root: Path = RECORDED) -> list[HuntRecord] | None:
    """Return one record per statement of the suite; None if there is no folder of counterexamples.

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
    """Return the recorded status of a statement without an assumption; nothing is replayed."""
    if without in statement.needs:
        return Status.NEEDED
    path = directory / f"{statement.id}-without-{without}.json"
    if not path.exists():
        return Status.HOLE
    return Status.NONE_FOUND if "none_found" in read_named_values(path) else Status.REFUTED


@dataclass(frozen=True)
class Power:
    """Planted faults and the statements that catch them.

    Attributes:
        faults: the number of planted faults.
        caught: the number of faults that some statement catches.
        by_kind: by kind of fault and id of a statement, two numbers: how many faults of that kind the statement
            catches, and how many are in functions that the statement calls.
    """

    faults: int
    caught: int
    by_kind: dict[str, dict[str, tuple[int, int]]]


def power(chosen: Iterable[Statement], root: Path = RECORDED) -> Power | None:
    """Return the counts from the tables fault × statement; None if there are none."""
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
    """Return the printed cells of each planted fault, by statement; None if there is no table."""
    folders = [root / RECORDS, *(paper.recorded for paper in papers() if paper.recorded)]
    tables = [table for folder in folders for path in sorted(folder.glob(POWER)) for table in _tables(path)]
    by_fault: dict[str, dict[str, str]] = {}
    for table in tables:
        for fault, row in table.items():
            by_fault[fault] = by_fault.get(fault, {}) | row
    return by_fault or None


def _tables(path: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Yield the tables fault × statement of a document, none if the document does not exist."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    begin = next((k for k, line in enumerate(lines) if line.startswith("| fault | in |")), None)
    if begin is not None:
        # Columns are headed by abbreviated ids. If two abbreviations are equal, the first id counts, so that a later
        # paper cannot take a column of an earlier paper.
        ids = {short(id): id for id in reversed(statements())}
        heads = [ids.get(head, head) for head in _cells(lines[begin])[2:]]
        rows = map(_cells, takewhile(lambda line: line.startswith("|"), lines[begin + 2 :]))
        yield {row[0].strip("`"): dict(zip(heads, row[2:], strict=True)) for row in rows}


def is_caught(sign: str) -> bool:
    """Return whether a printed cell is the number of the example on which the fault was caught."""
    return re.fullmatch(r"\d+", sign) is not None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]
