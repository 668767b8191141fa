"""What the repository holds besides a run: counterexamples to every statement without an assumption, and its power.

Both are read as they were recorded, nothing is replayed here:
``theorems counterexamples`` and ``theorems power`` do that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reference_attention.files import read_named_values
from theorems.core.recorded import RECORDED
from theorems.core.statement import Statement
from theorems.hunting.entries import droppable
from theorems.hunting.table import Status
from theorems.power.table import short

COUNTEREXAMPLES = Path("counterexamples")
ASSUMPTIONS_DOCUMENT = Path("docs/assumptions.md")
POWER_DOCUMENT = Path("docs/power.md")


@dataclass(frozen=True)
class Hunted:
    """A statement without each of its assumptions, by what is recorded of it."""

    id: str
    by_status: dict[Status, list[str]] = field(default_factory=dict)


def hunted(chosen: Iterable[Statement], root: Path = RECORDED) -> list[Hunted] | None:
    """One per statement of the suite; ``None`` where there is no folder of counterexamples.

    Raises:
        InvalidInput: a file in it that cannot be read.
    """
    if not (root / COUNTEREXAMPLES).is_dir():
        return None
    found = []
    for statement in chosen:
        if statement.file:
            continue
        one = Hunted(statement.id)
        for without in droppable(statement):
            one.by_status.setdefault(_status(root / COUNTEREXAMPLES, statement, without), []).append(without)
        found.append(one)
    return found


def _status(directory: Path, statement: Statement, without: str) -> Status:
    if without in statement.needs:
        return Status.NEEDED
    path = directory / f"{statement.id}-without-{without}.json"
    if not path.exists():
        return Status.HOLE
    return Status.NONE_FOUND if "none_found" in read_named_values(path) else Status.REFUTED


@dataclass(frozen=True)
class Power:
    """Planted faults and who catches them.

    Attributes:
        faults: how many were planted.
        caught: how many of them some statement catches.
        by_statement: how many each statement catches, by id.
    """

    faults: int
    caught: int
    by_statement: dict[str, int]


def power(chosen: Iterable[Statement], root: Path = RECORDED) -> Power | None:
    """The table fault × statement of docs/power.md, counted; ``None`` where there is none."""
    path = root / POWER_DOCUMENT
    if not path.is_file():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = next((k for k, line in enumerate(lines) if line.startswith("| fault | in |")), None)
    if begin is None:
        return None
    heads = _cells(lines[begin])
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(_cells(line))
    caught = [[bool(re.fullmatch(r"\d+", cell)) for cell in row[2:]] for row in rows]
    counts = {head: sum(row[k] for row in caught) for k, head in enumerate(heads[2:])}
    ids = {short(statement.id): statement.id for statement in chosen if not statement.file}
    return Power(len(rows), sum(any(row) for row in caught), {ids[h]: n for h, n in counts.items() if h in ids})


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]
