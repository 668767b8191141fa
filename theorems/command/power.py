"""``theorems power``: from its options to tables and an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from reference_attention.files import check_writable, to_json, write_text
from theorems.core.exit_code import Exit
from theorems.core.version import version
from theorems.faults import FAULTS, Fault, fault_named
from theorems.faults.power.table import LEGEND, as_json, catchers, markdown, power_table, sizes_table
from theorems.faults.power.trial import FaultOutcome
from theorems.faults.power.work import AT_A_TIME, Column, FaultTrials, Shrunk, Smallest
from theorems.run.description import Heading
from theorems.run.engines.named import LOCAL, coordinator
from theorems.run.identity import identity, of_headings
from theorems.run.journal import Journal, close
from theorems.run.opening import headings
from theorems.run.pool import PATIENCE
from theorems.run.progress import show_progress, totals_of
from theorems.run.registry.suite import statements
from theorems.run.sandbox import Sandbox, open_sandbox
from theorems.run.schedule import Interrupted, run
from theorems.run.tables import console

QUICKEST = 4
"""Statements that a fault is made smaller against: the one that it names, and those that took the fewest examples."""


@dataclass(frozen=True)
class PowerRequest:
    """The options of ``theorems power``."""

    ids: tuple[str, ...]
    faults: tuple[str, ...]
    examples: int
    seed: int
    jobs: int
    sizes: bool
    markdown: bool
    json: Path | None = None
    resume: Path | None = None
    patience: float = PATIENCE
    engine: str = LOCAL


def power_and_report(request: PowerRequest) -> int:
    """Run, write, print; returns the exit code.

    Raises:
        InvalidInput: unknown ids or faults, files that cannot be written; before anything runs.
    """
    if request.json is not None:
        check_writable(request.json)
    with open_sandbox(request.jobs, request.patience) as sandbox:
        return _tabulate(request, sandbox)


def _tabulate(request: PowerRequest, sandbox: Sandbox) -> int:
    known = {one.id: one for one in headings(request.ids or tuple(statements()), sandbox)}
    faults = list({name: fault_named(name) for name in request.faults}.values()) or list(FAULTS.values())
    names = tuple(fault.name for fault in faults)
    options = {"examples": request.examples, "seed": request.seed, "faults": list(names)}
    about = identity("power", **of_headings(list(known.values())), **options)
    journal = None if request.resume is None else Journal(request.resume, about)
    with coordinator(request.engine, about, request.resume) as engine:
        how = {"journal": journal, "patience": request.patience, "pool": sandbox.pool, "engine": engine}
        return _tabulate_on(request, known, faults, how)


def _tabulate_on(
    request: PowerRequest, known: Mapping[str, Heading], faults: Sequence[Fault], how: Mapping[str, Any]
) -> int:
    names = tuple(fault.name for fault in faults)
    journal = how["journal"]
    out, err = console(), console(stderr=True)
    at_a_time = 0 if request.engine == LOCAL else AT_A_TIME
    facing = [FaultTrials(id, names, request.examples, request.seed, at_a_time=at_a_time) for id in known]
    smallest: list[Smallest] = []
    interrupted = False
    try:
        with show_progress(err, totals_of(facing), what="statements", steps="faults") as progress:
            columns = run(facing, request.jobs, progress, **how)
    except Interrupted as stopped:
        columns, interrupted = stopped.results, True
    shrinking = _shrinking(request, faults, columns) if request.sizes and not interrupted else []
    if shrinking:
        try:
            with show_progress(err, totals_of(shrinking), what="sizes", steps="statements") as progress:
                smallest = run(shrinking, request.jobs, progress, **how)
        except Interrupted as stopped:
            smallest, interrupted = stopped.results, True
    close(journal)
    if request.json is not None:
        about = {"version": version(), "seed": request.seed, "examples": request.examples}
        write_text(request.json, to_json(about | as_json(columns, smallest), indent=2) + "\n")
    if interrupted and request.markdown:
        err.print("theorems: interrupted; no document is printed of a part of the table.", soft_wrap=True)
        return Exit.INTERRUPTED
    if request.markdown:
        print(markdown(faults, columns, smallest, _command(request), _reference(columns), known), end="")
    else:
        out.print(power_table(faults, columns))
        out.print(LEGEND, soft_wrap=True)
        if smallest:
            out.print(sizes_table([one for one in smallest if not one.failed]))
    if interrupted:
        err.print("theorems: interrupted; what is marked · was not tried.", soft_wrap=True)
        return Exit.INTERRUPTED
    return _exit_code(err, faults, columns)


def _shrinking(request: PowerRequest, faults: Sequence[Fault], columns: Sequence[Column]) -> list[Shrunk]:
    made = []
    for fault in faults:
        found = [c for c in columns if fault.name in c.cells and c.cells[fault.name].found is FaultOutcome.CAUGHT]
        # The statement that the fault names goes first, whatever it took.
        order = sorted(found, key=lambda c: (c.id != fault.caught_by, c.cells[fault.name].examples))
        quickest = order[:QUICKEST]
        if fault.unit and quickest:
            ids = tuple(column.id for column in quickest)
            made.append(Shrunk(fault.name, ids, request.examples, request.seed))
    return made


def _command(request: PowerRequest) -> str:
    options = [*request.ids]
    for name in request.faults:
        options += ["--faults", name]
    options += ["--examples", str(request.examples), "--seed", str(request.seed), "--markdown"]
    return " ".join(["theorems power", *options])


def _reference(columns: Sequence[Column]) -> str:
    upheld, cases = sum(c.reference for c in columns), sum(c.cases for c in columns)
    wrong = ", ".join(c.id for c in columns if c.falsified)
    falsified = f"falsified by {wrong}, whose columns say nothing" if wrong else "falsified on none"
    return (
        f"The right implementation was upheld on {upheld} of the {cases} cases of the {len(columns)} statements, and"
        f" {falsified}; what it is not upheld on counts for no fault."
    )


def _exit_code(err: Console, faults: Sequence[Fault], columns: Sequence[Column]) -> int:
    for column in columns:
        if column.failed or column.falsified:
            why = (
                column.failed
                or f"the right implementation is falsified, so its column says nothing: {column.falsified}"
            )
            err.print(f"theorems: {column.id}: {why}", soft_wrap=True)
    if any(column.failed or column.falsified for column in columns):
        return Exit.INCONCLUSIVE
    escaped = [fault.name for fault in faults if not catchers(fault.name, columns)]
    if escaped:
        err.print(f"theorems: caught by no statement: {', '.join(escaped)}.", soft_wrap=True)
        return Exit.FALSIFIED
    return Exit.UPHELD
