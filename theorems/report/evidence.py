"""Recorded evidence for a report: counterexamples to statements without an assumption.

The evidence is read from files; ``theorems list counterexamples`` computes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reference_attention.files import read_named_values
from theorems.core.recorded_files import RECORDED
from theorems.core.statement import Statement
from theorems.counterexamples.assumption_table import Status
from theorems.counterexamples.weakened_statements import droppable
from theorems.run.registry.suite import folder_of

COUNTEREXAMPLES = Path("counterexamples")


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
