"""The output of a hunt for counterexamples: progress, then the counterexample, or the number of cases tried."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from theorems.core.check import sentence
from theorems.core.claim import Verdict
from theorems.counterexamples.assumption_table import Row
from theorems.counterexamples.check import CaseCheck
from theorems.counterexamples.search import Effort, Hunt
from theorems.run.findings import NamedFinding
from theorems.run.tables import assumptions_table, column_table, print_case
from theorems.without.weakening import Weakened

PATIENCE = 10.0
"""Seconds between two lines of progress if standard error is not a terminal."""


def rows_table(rows: Sequence[Row]) -> Table:
    """Return a table with a row for each pair of a statement and an assumption left out."""
    cells = [
        (
            row.statement,
            row.without,
            str(row.status),
            ", ".join(map(str, row.shape)) if row.shape else "",
            row.explanation,
        )
        for row in rows
    ]
    return column_table("statement", "without", "", "n, T, d", "what fails", rows=cells, whole=("statement",))


def print_nothing(out: Console, hunt: Hunt, interrupted: bool) -> None:
    """Print that no counterexample was found, and how many cases were tried."""
    effort, name = hunt.effort, hunt.weakened.title
    duration = "interrupted" if interrupted else f"{hunt.seconds:g} s"
    out.print(Text(f"{name}: no counterexample found", "bold"), soft_wrap=True)
    best = "no violation could be measured" if effort.best == -math.inf else f"largest violation {effort.best:.3g}"
    out.print(f"  {effort.tried} cases in {effort.rounds} rounds, seed {hunt.seed}, {duration}; {best}", soft_wrap=True)
    without = hunt.weakened.without
    if without and hunt.weakened.violation is None:
        out.print(f"  on {effort.met} of the cases, {without} fails and the other assumptions hold", soft_wrap=True)
    if effort.undecided:
        out.print(
            Text(f"  {effort.undecided} of the cases are undecided, the first because: {effort.why_undecided}"),
            soft_wrap=True,
        )
    if effort.nothing_decided:
        out.print("  No case could be decided, so this hunt is inconclusive.", soft_wrap=True)
    else:
        out.print("  This is not a proof: other data may still be a counterexample.", soft_wrap=True)


def print_counterexample(out: Console, hunt: Hunt, examined: CaseCheck, path: Path) -> None:
    """Print the counterexample that the hunt found, and how to replay its file."""
    assert hunt.found is not None
    print_examined(out, hunt.weakened, examined)
    print_case(out, hunt.found)
    effort = hunt.effort
    out.print(f"  found at case {effort.tried}; {effort.shrinking} more cases checked to shrink it", soft_wrap=True)
    out.print(Text(f"  Replay with: theorems replay {shlex.quote(str(path))}"), soft_wrap=True)


def print_examined(out: Console, weakened: Weakened, examined: CaseCheck) -> None:
    """Print what the hunt tries to refute, the violated claims, and every assumption with its evidence."""
    word = "refuted" if examined.is_counterexample else "not refuted"
    out.print(Text(f"{weakened.title}: {word}", "bold"), soft_wrap=True)
    out.print(Text(f"  It says: {weakened.refutes}"), soft_wrap=True)
    for claim in examined.claims:
        if claim.verdict is Verdict.FALSIFIED or claim is examined.violated:
            out.print(Text(f"  violated: {sentence(claim)}"), soft_wrap=True)
    out.print(Text(f"  Why: {' '.join(weakened.why.split())}"), soft_wrap=True)
    findings = [*examined.kept, *([(weakened.without, examined.dropped)] if weakened.without else [])]
    rows = [NamedFinding(id, weakened.statement.assumption(id).title, f.holds, f.evidence) for id, f in findings]
    out.print(assumptions_table(rows))


@contextmanager
def hunt_progress(err: Console, name: str, seconds: float) -> Iterator[Callable[[Effort], None]]:
    """Show the rate of cases and the largest violation so far: in a bar on a terminal, otherwise in separate lines."""
    began = time.monotonic()

    def status_line(effort: Effort) -> str:
        rate = (effort.tried + effort.shrinking) / max(time.monotonic() - began, 1e-9)
        best = "—" if effort.best == -math.inf else f"{effort.best:.3g}"
        shrinking = f", {effort.shrinking} more to shrink it" if effort.shrinking else ""
        return f"{effort.phase}: {effort.tried} cases{shrinking}, {rate:.0f}/s, largest violation {best}"

    if err.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Bars(*columns, console=err, transient=True) as bars:
            task = bars.add_task(name, total=seconds)

            def show(effort: Effort) -> None:
                bars.update(task, description=f"{name} {status_line(effort)}", completed=time.monotonic() - began)

            yield show
        return
    last = began

    def line(effort: Effort) -> None:
        nonlocal last
        if time.monotonic() - last > PATIENCE:
            last = time.monotonic()
            err.print(f"{name}: {status_line(effort)}", soft_wrap=True)

    yield line
