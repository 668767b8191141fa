"""A table of the results of ``theorems verify --realistic``: ``python -m tests.realistic_table FILE.json …``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HEADINGS = ("statement", "cases", "upheld", "falsified", "inconclusive", "not applicable", "why not upheld")


def rows(paths: list[Path]) -> list[dict[str, Any]]:
    """Return the results of all statements in the files; of a statement in several files, that with the most cases."""
    best: dict[str, dict[str, Any]] = {}
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8"))["statements"]:
            if row["id"] not in best or row["examples"] > best[row["id"]]["examples"]:
                best[row["id"]] = row
    return list(best.values())


def reason(row: dict[str, Any]) -> str:
    """Return why cases of a statement were not upheld, without counts and numbers about a competing token."""
    several = re.split(r"; (?=\d+ of \d+ examples)", row["reason"])
    return "; ".join(
        re.sub(r"^\d+ of \d+ examples [\w-]+: ", "", text).split(", the competitor")[0] for text in several
    )


def table(statements: list[dict[str, Any]]) -> str:
    """Return the results as a Markdown table, whose last row has the sums of all statements."""
    kinds = ("upheld", "falsified", "inconclusive", "not-applicable")
    lines = [f"| {' | '.join(HEADINGS)} |", "| --- | --: | --: | --: | --: | --: | --- |"]
    for row in statements:
        counts = [str(row["counts"][kind]) for kind in kinds]
        lines.append(f"| {row['id']} | {row['examples']} | {' | '.join(counts)} | {reason(row)} |")
    sums = [str(sum(row["counts"][kind] for row in statements)) for kind in kinds]
    lines.append(f"| all | {sum(row['examples'] for row in statements)} | {' | '.join(sums)} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(rows([Path(path) for path in sys.argv[1:]])))
