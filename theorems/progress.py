"""How a run goes on, on standard error: bars on a terminal, one plain line per statement otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from theorems.result import Result
from theorems.run import Unit, Watcher

PATIENCE = 30.0
"""Seconds between two lines about a statement that takes long."""


class Lines:
    """One line per finished statement, and one now and then about a statement that takes long."""

    def __init__(self, out: Console, total: int) -> None:
        self._out = out
        self._total = total
        self._done = 0
        self._said = time.monotonic()

    def progressed(self, id: str, done: int) -> None:
        """A line, if there was none for a while."""
        if time.monotonic() - self._said > PATIENCE:
            self._said = time.monotonic()
            self._out.print(f"{id}: {done} examples so far", soft_wrap=True)

    def finished(self, result: Result) -> None:
        """A line."""
        self._done += 1
        self._said = time.monotonic()
        examples = f"{result.examples} example{'' if result.examples == 1 else 's'}"
        line = f"[{self._done}/{self._total}] {result.id}: {result.verdict}, {examples}, {result.seconds:.1f} s"
        self._out.print(line, soft_wrap=True)


class Bars:
    """A bar for the whole and one for each statement under way."""

    def __init__(self, bars: Progress, units: Sequence[Unit]) -> None:
        self._bars = bars
        self._of = {unit.id: None if unit.data else unit.examples for unit in units}
        self._tasks: dict[str, TaskID] = {}
        self._all = bars.add_task("statements", total=len(units))

    def progressed(self, id: str, done: int) -> None:
        """The bar of the statement grows."""
        if id not in self._tasks:
            self._tasks[id] = self._bars.add_task(id, total=self._of[id])
        self._bars.update(self._tasks[id], completed=done)

    def finished(self, result: Result) -> None:
        """The bar of the statement goes, that of the whole grows."""
        if result.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(result.id))
        self._bars.advance(self._all)


@contextmanager
def watching(out: Console, units: Sequence[Unit]) -> Iterator[Watcher]:
    """A watcher for the units, fit for the console."""
    if not out.is_terminal:
        yield Lines(out, len(units))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bars:
        yield Bars(bars, units)
