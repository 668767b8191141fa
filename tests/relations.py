"""A table of the results of ``theorems verify --relations``: ``python -m tests.relations FILE …``.

A relation is a change of a case, such as a rotation of the data, that must not change the verdict.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from generators.metamorphic_relations import RELATIONS
from theorems.run.registry.suite import statements


def cell(statement: dict[str, Any], name: str) -> str:
    """Return how many of a statement's cases a relation was applied to and, in bold, how many verdicts changed."""
    counts = statement.get("relations", {}).get(name)
    if counts is None:
        return "–" if name in statements()[statement["id"]].varies else ""
    return f"{counts['cases']}, **{counts['differing']}**" if counts["differing"] else str(counts["cases"])


def table(statements: list[dict[str, Any]]) -> str:
    """Return a Markdown table with a row for each statement and a column for each relation."""
    names = [relation.name for relation in RELATIONS]
    lines = [f"| statement | cases | {' | '.join(names)} |", f"| --- | --: |{' --: |' * len(names)}"]
    for statement in statements:
        cells = " | ".join(cell(statement, name) for name in names)
        lines.append(f"| {statement['id']} | {statement['examples']} | {cells} |")
    examples = sum(statement["examples"] for statement in statements)
    lines.append(f"| all | {examples} | {' | '.join(_total(statements, name) for name in names)} |")
    return "\n".join(lines)


def _total(statements: list[dict[str, Any]], name: str) -> str:
    """Return the number of cases, of all statements together, to which a relation was applied."""
    return str(sum(statement.get("relations", {}).get(name, {}).get("cases", 0) for statement in statements))


if __name__ == "__main__":
    runs = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    print(table([statement for run in runs for statement in run["statements"]]))
