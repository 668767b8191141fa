"""The stored counts, by minor version of Python: each version compiles a source into different instructions."""

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
"""Allowed relative change in either direction. On one machine counts repeat exactly; on another processor the last
digits of matrix products change the number of rounds of adaptive loops, and LAPACK needs another work space. The sizes
of these changes are in docs/profile.md.
"""


@dataclass(frozen=True)
class Kept:
    """A stored count and, if it has grown, the reason."""

    cost: Cost
    why: str


class Unsaid(Exception):
    """An exception for a count that has grown without a reason."""


def read(path: Path = FILE) -> dict[str, Kept]:
    """Return the counts for this version of Python by workload; there may be none."""
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    own = counts.get(PYTHON, {})
    return {name: Kept(Cost(entry["instructions"], entry["bytes"]), entry["why"]) for name, entry in own.items()}


def changes(kept: Cost, now: Cost) -> dict[str, float]:
    """Return the counts that are off by more than 5 %, as shares of the stored ones."""
    shares = {field.name: getattr(now, field.name) / getattr(kept, field.name) - 1 for field in fields(Cost)}
    return {name: share for name, share in shares.items() if abs(share) > ROOM}


def updated(kept: Mapping[str, Kept], now: Mapping[str, Cost], why: str) -> dict[str, Kept]:
    """Return the counts to store. A count within 5 % of the stored one is not updated, so that small rises add up until
    they are noticed.

    Raises:
        Unsaid: a count has grown, and ``why`` is empty.
    """
    counts = {}
    for name, cost in now.items():
        off = changes(kept[name].cost, cost) if name in kept else {}
        if not why and any(share > 0 for share in off.values()):
            raise Unsaid(name)
        counts[name] = Kept(cost, why) if off or name not in kept else kept[name]
    return counts


def write(kept: Mapping[str, Kept], path: Path = FILE) -> None:
    """Write the counts, and keep those of other Python versions."""
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    before = counts.get(PYTHON, {})
    counts[PYTHON] = {name: {**asdict(entry.cost), "why": entry.why} for name, entry in kept.items()}
    changed = {name for name, entry in before.items() if counts[PYTHON].get(name) != entry}
    for version in counts.keys() - {PYTHON}:
        counts[version] = {name: entry for name, entry in counts[version].items() if name not in changed}
    path.write_text(json.dumps(counts, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
