"""Progress of a run on standard error: bars on a terminal, one plain line per unit of work otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from reference_attention.errors import printable
from theorems.run.events import CaseDone, Event, Handler, Notice, Started, UnitDone

PATIENCE = 30.0
"""Seconds without a line after which a line about an unfinished statement is printed."""


class Lines:
    """Progress as printed lines.

    A line is printed for each finished unit of work, and about an unfinished one after :data:`PATIENCE` seconds without
    a line.
    """

    def __init__(self, out: Console, total: int, steps: str) -> None:
        """Take the console, the number of units of work, and the plural noun for a unit's steps, such as "examples"."""
        self._out = out
        self._steps = steps
        self._total = total
        self._done = 0
        self._on_kernel = False
        self._printed = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Print the lines for an event of the run; most events print nothing."""
        match event:
            case Started(about):
                self._total, self._on_kernel = len(about.statements), about.kernel is not None
            case CaseDone(id, done) if time.monotonic() - self._printed > PATIENCE:
                self._line(f"{id}: {done} {self._steps} so far")
            case UnitDone(result):
                self._done += 1
                # Statements that do not concern the kernel are not run; the report lists them, with reasons.
                if not self._on_kernel or result.was_tried:
                    self._line(f"[{self._done}/{self._total}] {result.id}: {result.summary}")
            case Notice(sentence):
                self._out.print(f"theorems: {sentence}", soft_wrap=True)

    def _line(self, text: str) -> None:
        self._printed = time.monotonic()
        self._out.print(text, soft_wrap=True)


class Bars:
    """Progress as bars: one bar for the run, and one for each unit of work that is being run."""

    def __init__(self, bars: Progress, totals: Mapping[str, int | None], title: str) -> None:
        """Take rich's bars, each unit's number of steps by id (None if unknown), and the title of the run's bar."""
        self._bars = bars
        self._of = totals
        self._tasks: dict[str, TaskID] = {}
        self._all = bars.add_task(title, total=len(totals))

    def __call__(self, event: Event) -> None:
        """Update the bars for an event of the run.

        A unit's bar grows with each finished case; when the unit is done, this bar is removed and the bar of the run
        grows.
        """
        match event:
            case Started(about):
                self._of = {heading.id: about.examples for heading in about.statements}
                self._bars.update(self._all, total=len(self._of))
                self._bars.start()
            case CaseDone(id, done):
                if id not in self._tasks:
                    self._tasks[id] = self._bars.add_task(printable(id), total=self._of[id])
                self._bars.update(self._tasks[id], completed=done)
            case UnitDone(result):
                if result.id in self._tasks:
                    self._bars.remove_task(self._tasks.pop(result.id))
                self._bars.advance(self._all)
            case Notice(sentence):
                self._bars.console.print(f"theorems: {sentence}", soft_wrap=True)


@contextmanager
def show_progress(
    out: Console, totals: Mapping[str, int | None] | None = None, *, title: str = "statements", steps: str = "examples"
) -> Iterator[Handler]:
    """Yield a handler of events that shows progress: bars on a terminal, lines elsewhere.

    Args:
        out: the console.
        totals: the number of steps of each unit of work, by the unit's id; not needed for a session, which sends these
            numbers when it starts.
        title: the plural noun for the units of work.
        steps: the plural noun for a unit's steps.
    """
    if not out.is_terminal:
        yield Lines(out, len(totals or {}), steps)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=out, transient=True)
    try:
        if totals is not None:
            bars.start()
        yield Bars(bars, totals or {}, title)
    finally:
        bars.stop()
