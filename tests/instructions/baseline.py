"""The counts that are kept, by minor version of Python: each compiles a source into instructions of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tests.instructions.counting import Cost

FILE = Path(__file__).parent / "baseline.json"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ROOM = 0.05
"""Either way. On one machine a count repeats exactly; the last digits of another processor's matrix products change how
often an adaptive loop goes round, and its LAPACK how much it works in; docs/profile.md has by how much."""


@dataclass(frozen=True)
class Kept:
    """A count and, where it has grown, why."""

    cost: Cost
    why: str


class Unsaid(Exception):
    """Something costs more, and nobody said why."""


def read(path: Path = FILE) -> dict[str, Kept]:
    """Of this Python, by workload; empty if there are none."""
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    own = counts.get(PYTHON, {})
    return {name: Kept(Cost(entry["instructions"], entry["bytes"]), entry["why"]) for name, entry in own.items()}


def changes(kept: Cost, now: Cost) -> dict[str, float]:
    """What is more than 5 % off, as a share of what it was."""
    shares = {field.name: getattr(now, field.name) / getattr(kept, field.name) - 1 for field in fields(Cost)}
    return {name: share for name, share in shares.items() if abs(share) > ROOM}


def updated(kept: Mapping[str, Kept], now: Mapping[str, Cost], why: str) -> dict[str, Kept]:
    """What is to be kept now. A count within 5 % stays as it is, so that small rises add up until they are seen.

    Raises:
        Unsaid: one has grown, and ``why`` is empty.
    """
    counts = {}
    for name, cost in now.items():
        off = changes(kept[name].cost, cost) if name in kept else {}
        if not why and any(share > 0 for share in off.values()):
            raise Unsaid(name)
        counts[name] = Kept(cost, why) if off or name not in kept else kept[name]
    return counts


def write(kept: Mapping[str, Kept], path: Path = FILE) -> None:
    """What other versions of Python have of the same source stays."""
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    before = counts.get(PYTHON, {})
    counts[PYTHON] = {name: {**asdict(entry.cost), "why": entry.why} for name, entry in kept.items()}
    changed = {name for name, entry in before.items() if counts[PYTHON].get(name) != entry}
    for version in counts.keys() - {PYTHON}:
        counts[version] = {name: entry for name, entry in counts[version].items() if name not in changed}
    path.write_text(json.dumps(counts, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
