"""Program that prints the tables of docs/planning.md: the time of large runs on 1, 10 and 1,000 cores.

Run it with ``python benchmarks/planning.py``. The seconds per case are read from build/records/verify.json, which
``make records`` writes. The parts of a run are assumed to start in order, each on the first core that is free.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from theorems.counterexamples.assumption_table import pairs
from theorems.counterexamples.search import ROUND
from theorems.run.verify import PART, part_sizes

CORES = (1, 10, 1000)
MEASURED = Path(__file__).parents[1] / "build" / "records" / "verify.json"


def costs(path: Path = MEASURED) -> dict[str, float]:
    """Return the measured seconds per case of each statement, in the statements' order."""
    report = json.loads(path.read_text(encoding="utf-8"))
    return {statement["id"]: statement["seconds"] / statement["examples"] for statement in report["statements"]}


def wall(parts: Iterable[float], cores: int) -> float:
    """Return the seconds until all parts are finished, if each starts in order on the first core that is free."""
    free = [0.0] * cores
    for seconds in parts:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def format_duration(seconds: float) -> str:
    """Return a duration as text in days, hours, minutes or seconds, depending on its size."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}" if seconds >= 20 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def parts_of_verify(cost: Mapping[str, float], examples: int) -> list[float]:
    """Return the seconds of each part of a run of ``theorems verify``; the parts of the last statement come first."""
    return [cost[id] * size for id in reversed(list(cost)) for size in part_sizes(examples)]


def rounds_of_hunt(cost: Mapping[str, float], rounds: int) -> list[float]:
    """Return the seconds of each round if every pair of a statement and an assumption is hunted for ``rounds`` rounds.

    A case of a hunt is assumed to take as long as a case of ``theorems verify``.
    """
    huntable = [statement.id for statement, without in pairs() if without not in statement.needs]
    return [cost[id] * ROUND for id in huntable if id in cost for _ in range(rounds)]


def row(what: str, parts: Sequence[float]) -> str:
    """Return a row of the table: total work, time on each number of cores, and the least time on any number."""
    times = " | ".join(format_duration(wall(parts, cores)) for cores in CORES)
    return f"| {what} | {format_duration(sum(parts))} | {times} | {format_duration(max(parts))} |"


def tables(cost: Mapping[str, float]) -> str:
    """Return the tables of docs/planning.md as Markdown, given the seconds per case of each statement."""
    dear = sorted(cost, key=cost.__getitem__, reverse=True)[:5]
    million = 10**6
    heads = " | ".join(f"{cores:,} core{'s' if cores > 1 else ''}" for cores in CORES)
    lines = [
        f"| | work | {heads} | dearest part |",
        "|---|---|---|---|---|---|",
        row("`verify --examples 2000` (`make deep`)", parts_of_verify(cost, 2000)),
        row(
            f"a million examples in all, {million // len(cost):,} a statement",
            parts_of_verify(cost, million // len(cost)),
        ),
        row("a million examples of each statement", parts_of_verify(cost, million)),
        row(f"a million examples of {dear[0]} alone", parts_of_verify({dear[0]: cost[dear[0]]}, million)),
        row("every pair of a statement and an assumption hunted, a round each", rounds_of_hunt(cost, 1)),
        row("the same, 25 rounds (10,000 cases) each", rounds_of_hunt(cost, 25)),
        "",
        f"| dearest | a case | a part of {PART} cases | a round of {ROUND} cases |",
        "|---|---|---|---|",
        *(
            f"| `{id}` | {cost[id]:.2f} s | {format_duration(cost[id] * PART)} | {format_duration(cost[id] * ROUND)} |"
            for id in dear
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables(costs()))
