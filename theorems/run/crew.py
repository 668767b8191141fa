"""Processes that work on units: one that dies is replaced, one that takes too long is ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from max_margin_theorems import stopping
from theorems.run.worker import serve

LOOK = 0.1
"""Seconds between two looks at signals and clocks."""
TRIES = 3
"""How often a unit is begun while the process that works on it dies before it gets any further."""

Told = Callable[[int, str, Any], None]


@dataclass(eq=False)
class _Worker:
    """One process.

    Attributes:
        unit: what it works on; None while it has nothing to do.
        began: when it began with it; None while it still imports what it needs.
    """

    process: SpawnProcess
    connection: Connection
    unit: int | None = None
    began: float | None = None


class Crew:
    """Up to ``size`` processes."""

    def __init__(self, size: int, timeout: float | None) -> None:
        self._size = size
        self._timeout = timeout
        self._workers: list[_Worker] = []
        self._deaths: Counter[int] = Counter()

    def work(self, order: Sequence[int], unit: Callable[[int], Any], told: Told) -> None:
        """Work on units until all are finished, failed or out of time.

        Args:
            order: their numbers.
            unit: the unit of a number, as it is now: with what it need not do again.
            told: called with the number, a word and a value: those of :func:`theorems.run.worker.serve`,
                ``out of time`` (None) or ``again`` (how the process died).

        Raises:
            KeyboardInterrupt: a signal came.
        """
        waiting = deque(order)
        while waiting or any(worker.unit is not None for worker in self._workers):
            if stopping.asked():
                raise KeyboardInterrupt
            while waiting and (worker := self._idle()) is not None:
                self._send(worker, waiting.popleft(), unit, told)
            for worker in self._ready():
                number = self._hear(worker, told)
                if number is not None:
                    waiting.appendleft(number)
            self._end_late_ones(told)

    def dismiss(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.connection.close()
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
        self._workers.clear()

    def _idle(self) -> _Worker | None:
        free = next((worker for worker in self._workers if worker.unit is None), None)
        if free is None and len(self._workers) < self._size:
            free = _hired()
            self._workers.append(free)
        return free

    def _ready(self) -> list[_Worker]:
        by_connection = {worker.connection: worker for worker in self._workers}
        return [by_connection[one] for one in wait(list(by_connection), LOOK)]  # type: ignore[index]

    def _send(self, worker: _Worker, number: int, unit: Callable[[int], Any], told: Told) -> None:
        worker.unit, worker.began = number, None
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it is dead, and will be found to be
                worker.connection.send(unit(number))
        except Exception as error:
            worker.unit = None
            told(number, "failed", f"{type(error).__name__}: {error}")

    def _hear(self, worker: _Worker, told: Told) -> int | None:
        """Take one message; the number of the unit if the process died and the unit has to begin again."""
        try:
            word, value = worker.connection.recv()
        except (EOFError, OSError):
            return self._bury(worker, told)
        assert worker.unit is not None
        if word == "begun":
            worker.began = time.monotonic()
            return None
        if word == "so far":
            self._deaths.pop(worker.unit, None)  # it gets on
        number = worker.unit
        if word in ("finished", "failed"):
            worker.unit = None
        told(number, word, value)
        return None

    def _bury(self, worker: _Worker, told: Told) -> int | None:
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        number, how = worker.unit, _how(worker.process.exitcode)
        if number is None:
            return None
        self._deaths[number] += 1
        if self._deaths[number] < TRIES:
            told(number, "again", how)
            return number
        told(number, "failed", f"it {how}, {TRIES} times at the same place")
        return None

    def _end_late_ones(self, told: Told) -> None:
        for worker in list(self._workers):
            late = self._timeout and worker.began is not None and time.monotonic() - worker.began > self._timeout
            if late and worker.unit is not None:
                worker.process.kill()
                worker.process.join()
                self._workers.remove(worker)
                self._last_words(worker, told)

    def _last_words(self, worker: _Worker, told: Told) -> None:
        """What it had said before its time was over."""
        assert worker.unit is not None
        number, over = worker.unit, False
        with suppress(EOFError, OSError):
            while worker.connection.poll():
                word, value = worker.connection.recv()
                if word != "begun":
                    told(number, word, value)
                over = over or word in ("finished", "failed")
        worker.connection.close()
        if not over:
            told(number, "out of time", None)


@contextmanager
def crew(size: int, timeout: float | None) -> Iterator[Crew]:
    """Processes that end with the block."""
    made = Crew(size, timeout)
    try:
        yield made
    finally:
        with stopping.held_back():
            made.dismiss()


def _hired() -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, os.getpid()))
    # It unblocks signals when it starts, so it starts before they are held back.
    resource_tracker.ensure_running()
    # A signal that the terminal sends to all is for this process to handle, not for them.
    with stopping.held_back():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"was killed by {name}{', for memory perhaps' if -code == getattr(signal, 'SIGKILL', 0) else ''}"
