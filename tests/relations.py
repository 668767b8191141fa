"""Print what came of a run of ``theorems verify --relations`` as a table: ``python -m tests.relations FILE.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from generators.relations import RELATIONS


def cell(one: dict[str, Any], name: str) -> str:
    """On how many cases a relation was tried; where the statement said something else, on how many, in bold."""
    counts = one.get("relations", {}).get(name)
    if counts is None:
        return "–" if _varies(one["id"], name) else ""
    return f"{counts['cases']}, **{counts['differing']}**" if counts["differing"] else str(counts["cases"])


def table(statements: list[dict[str, Any]]) -> str:
    """A table in Markdown, a row for each statement and a column for each relation."""
    names = [one.name for one in RELATIONS]
    lines = [f"| statement | cases | {' | '.join(names)} |", f"| --- | --: |{' --: |' * len(names)}"]
    for one in statements:
        lines.append(f"| {one['id']} | {one['examples']} | {' | '.join(cell(one, name) for name in names)} |")
    return "\n".join(lines)


def _varies(id: str, name: str) -> bool:
    return any(id in one.varies for one in RELATIONS if one.name == name)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["statements"]))
