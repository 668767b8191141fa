"""How a run goes on, on standard error: bars on a terminal, one plain line per unit of work otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from theorems.run.work import Finished, Watcher, Work

PATIENCE = 30.0
"""Seconds between two lines about a statement that takes long."""


class Lines:
    """One line per finished unit, and one now and then about a unit that takes long."""

    def __init__(self, out: Console, total: int, steps: str) -> None:
        self._out = out
        self._steps = steps
        self._total = total
        self._done = 0
        self._said = time.monotonic()

    def progressed(self, id: str, done: int) -> None:
        """A line, if there was none for a while."""
        if time.monotonic() - self._said > PATIENCE:
            self._said = time.monotonic()
            self._out.print(f"{id}: {done} {self._steps} so far", soft_wrap=True)

    def finished(self, result: Finished) -> None:
        """A line."""
        self._done += 1
        self._said = time.monotonic()
        self._out.print(f"[{self._done}/{self._total}] {result.id}: {result.summary}", soft_wrap=True)

    def said(self, sentence: str) -> None:
        """A line."""
        self._out.print(f"theorems: {sentence}", soft_wrap=True)


class Bars:
    """A bar for the whole and one for each unit under way."""

    def __init__(self, bars: Progress, units: Sequence[Work[Any]], what: str) -> None:
        self._bars = bars
        self._of = {unit.id: unit.total for unit in units}
        self._tasks: dict[str, TaskID] = {}
        self._all = bars.add_task(what, total=len(units))

    def progressed(self, id: str, done: int) -> None:
        """The bar of the unit grows."""
        if id not in self._tasks:
            self._tasks[id] = self._bars.add_task(id, total=self._of[id])
        self._bars.update(self._tasks[id], completed=done)

    def finished(self, result: Finished) -> None:
        """The bar of the unit goes, that of the whole grows."""
        if result.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(result.id))
        self._bars.advance(self._all)

    def said(self, sentence: str) -> None:
        """A line above the bars."""
        self._bars.console.print(f"theorems: {sentence}", soft_wrap=True)


@contextmanager
def watching(
    out: Console, units: Sequence[Work[Any]], *, what: str = "statements", steps: str = "examples"
) -> Iterator[Watcher]:
    """A watcher for the units, fit for the console; ``what`` they are, and what their ``steps`` are, in the plural."""
    if not out.is_terminal:
        yield Lines(out, len(units), steps)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bars:
        yield Bars(bars, units, what)
