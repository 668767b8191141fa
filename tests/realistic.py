"""Print what came of runs of ``theorems verify --realistic`` as a table: ``python -m tests.realistic FILE.json …``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HEADINGS = ("statement", "cases", "upheld", "falsified", "inconclusive", "not applicable", "why not upheld")


def rows(paths: list[Path]) -> list[dict[str, Any]]:
    """The statements of all files; of one that stands in several, the result on most cases."""
    best: dict[str, dict[str, Any]] = {}
    for path in paths:
        for one in json.loads(path.read_text(encoding="utf-8"))["statements"]:
            if one["id"] not in best or one["examples"] > best[one["id"]]["examples"]:
                best[one["id"]] = one
    return list(best.values())


def reason(one: dict[str, Any]) -> str:
    """The first reason of each kind, cut where its numbers begin."""
    several = re.split(r"; (?=\d+ of \d+ examples)", one["reason"])
    return "; ".join(
        re.sub(r"^\d+ of \d+ examples [\w-]+: ", "", text).split(", the competitor")[0] for text in several
    )


def table(statements: list[dict[str, Any]]) -> str:
    """A table in Markdown, and a line with the sums."""
    kinds = ("upheld", "falsified", "inconclusive", "not-applicable")
    lines = [f"| {' | '.join(HEADINGS)} |", "| --- | --: | --: | --: | --: | --: | --- |"]
    for one in statements:
        counts = [str(one["counts"][kind]) for kind in kinds]
        lines.append(f"| {one['id']} | {one['examples']} | {' | '.join(counts)} | {reason(one)} |")
    sums = [str(sum(one["counts"][kind] for one in statements)) for kind in kinds]
    lines.append(f"| all | {sum(one['examples'] for one in statements)} | {' | '.join(sums)} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(rows([Path(path) for path in sys.argv[1:]])))
