"""Processes that work on units: one that dies is replaced, one that takes too long is ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Any

from max_margin_theorems import stopping
from theorems.run.worker import serve

LOOK = 0.1
"""Seconds between two looks at signals and clocks."""
TRIES = 3
"""How often a unit is begun while the process that works on it dies before it gets any further; once where it is
somebody else's code that ends the process. Signal 9 comes from outside, and may have hit the wrong one."""
PATIENCE = 60.0
"""Seconds that somebody else's code may take for one case: a thousand times what a case takes on a kernel, and long
enough for a first call that compiles."""
STARTING = 60.0
"""Seconds that a process may take to import what it needs, on a busy machine."""

Told = Callable[[int, str, Any], None]


@dataclass(eq=False)
class _Worker:
    """One process.

    Attributes:
        unit: what it works on; None while it has nothing to do.
        foreign: whether that is somebody else's code.
        began: when it began with it; None while it still imports what it needs.
        heard: when it was last heard of.
    """

    process: SpawnProcess
    connection: Connection
    unit: int | None = None
    foreign: bool = False
    began: float | None = None
    heard: float = 0.0


class Crew:
    """Up to ``size`` processes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._workers: list[_Worker] = []
        self._deaths: Counter[int] = Counter()

    def work(
        self,
        order: Sequence[int],
        unit: Callable[[int], Any],
        told: Told,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Work on units until all are finished, failed or out of time.

        Args:
            order: their numbers.
            unit: the unit of a number, as it is now: with what it need not do again; None if it need not be done.
            told: called with the number, a word and a value: those of :func:`theorems.run.worker.serve`,
                ``out of time`` (None), ``out of patience`` (None), ``again`` or ``died`` (how).
            timeout: seconds after which a unit is ended.
            patience: seconds without a word after which a unit that is ``foreign`` is ended.

        Raises:
            KeyboardInterrupt: a signal came.
        """
        waiting = deque(order)
        self._deaths.clear()
        while waiting or any(worker.unit is not None for worker in self._workers):
            if stopping.asked():
                raise KeyboardInterrupt
            while _wanted(waiting, unit) and (worker := self._idle()) is not None:
                self._send(worker, waiting.popleft(), unit, told)
            for worker in self._ready():
                number = self._hear(worker, told)
                if number is not None:
                    waiting.appendleft(number)
            self._end_late_ones(told, timeout, patience)

    def settle(self, told: Told, seconds: float) -> None:
        """Hand a signal on to the units that are under way, and hear them out for so long."""
        for worker in self._workers:
            if worker.unit is not None and worker.process.pid is not None:
                os.kill(worker.process.pid, signal.SIGINT)
        until = time.monotonic() + seconds
        while any(worker.unit is not None for worker in self._workers) and time.monotonic() < until:
            for worker in self._ready():
                self._hear(worker, told)

    def dismiss(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.connection.close()
            _kill(worker.process)
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
        found = [by_connection[one] for one in wait(list(by_connection), LOOK)]  # type: ignore[index]
        # One that left a process of its own behind is gone, although its connection is open.
        return found or [worker for worker in self._workers if worker.foreign and not worker.process.is_alive()]

    def _send(self, worker: _Worker, number: int, unit: Callable[[int], Any], told: Told) -> None:
        worker.unit, worker.began, worker.heard = number, None, time.monotonic()
        try:
            sent = unit(number)
            worker.foreign = getattr(sent, "foreign", False)
            with suppress(BrokenPipeError, ConnectionResetError):  # it is dead, and will be found to be
                worker.connection.send((sent, worker.foreign))
        except Exception as error:
            worker.unit = None
            told(number, "failed", f"{type(error).__name__}: {error}")

    def _hear(self, worker: _Worker, told: Told) -> int | None:
        """Take one message; the number of the unit if the process died and the unit has to begin again."""
        if not worker.process.is_alive() and not worker.connection.poll():
            return self._bury(worker, told)
        try:
            word, value = worker.connection.recv()
        except (EOFError, OSError):
            return self._bury(worker, told)
        except Exception as error:
            if not worker.foreign:
                raise
            _kill(worker.process)
            return self._bury(worker, told, f"sent what cannot be read ({type(error).__name__}: {error})")
        assert worker.unit is not None
        worker.heard = time.monotonic()
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

    def _bury(self, worker: _Worker, told: Told, how: str = "") -> int | None:
        self._workers.remove(worker)
        worker.connection.close()
        until = time.monotonic() + LOOK
        while worker.process.is_alive() and time.monotonic() < until:
            time.sleep(LOOK / 10)  # join() with a time waits for ever where the code has closed all that is open
        if worker.process.is_alive():
            # Somebody's code closed the connection and goes on.
            how = how or "closed its connection"
        _kill(worker.process)
        worker.process.join()
        number, code = worker.unit, worker.process.exitcode
        own_doing = bool(how) or not _from_outside(code)
        how = how or _how(code)
        if number is None:
            return None
        if worker.foreign and own_doing:
            told(number, "died", how)
            return None
        self._deaths[number] += 1
        if self._deaths[number] < TRIES:
            told(number, "again", how)
            return number
        told(number, "died", f"{how}, {TRIES} times at the same place")
        return None

    def _end_late_ones(self, told: Told, timeout: float | None, patience: float) -> None:
        for worker in list(self._workers):
            if worker.unit is None:
                continue
            now = time.monotonic()
            late = timeout is not None and worker.began is not None and now - worker.began > timeout
            limit = patience if worker.began is not None else max(patience, STARTING)
            silent = worker.foreign and now - worker.heard > limit
            if late or silent:
                _kill(worker.process)
                worker.process.join()
                self._workers.remove(worker)
                self._last_words(worker, told, "out of time" if late else "out of patience")

    def _last_words(self, worker: _Worker, told: Told, why: str) -> None:
        """What it had said before its time was over."""
        assert worker.unit is not None
        number, over = worker.unit, False
        with suppress(Exception):  # cut off in the middle of a word, perhaps
            while worker.connection.poll():
                word, value = worker.connection.recv()
                if word != "begun":
                    told(number, word, value)
                over = over or word in ("finished", "failed")
        worker.connection.close()
        if not over:
            told(number, why, None)


def _wanted(waiting: deque[int], unit: Callable[[int], Any]) -> bool:
    """Whether there is more to do; what need not be done is left out."""
    while waiting and unit(waiting[0]) is None:
        waiting.popleft()
    return bool(waiting)


@contextmanager
def crew(size: int) -> Iterator[Crew]:
    """Processes that end with the block; they are started when there is work for them."""
    made = Crew(size)
    try:
        yield made
    finally:
        with stopping.held_back():
            made.dismiss()


_HIRING = threading.Lock()


def _hired() -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    # It unblocks signals when it starts, so it starts before they are held back.
    resource_tracker.ensure_running()
    # A signal that the terminal sends to all is for this process to handle, not for them.
    with _HIRING, stopping.held_back(), _no_main(), _no_daemon():
        process = context.Process(target=serve, args=(theirs, os.getpid()))
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def _no_main() -> Iterator[None]:
    """A process that is started within it does not run the caller's script, which may have no ``__main__`` guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _no_daemon() -> Iterator[None]:
    """Within it a daemon of multiprocessing, as Dask's workers are, may have children; these end with their parent."""
    config = getattr(multiprocessing.current_process(), "_config", {})
    before = config.pop("daemon", None)
    try:
        yield
    finally:
        if before is not None:
            config["daemon"] = before


def _kill(process: SpawnProcess) -> None:
    """With the processes that somebody's code started in it, which may hold our output open."""
    process.kill()
    if hasattr(os, "killpg") and process.pid is not None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _from_outside(code: int | None) -> bool:
    return code is not None and code < 0 and -code == getattr(signal, "SIGKILL", 0)


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"was killed by {name}{', for memory perhaps' if _from_outside(code) else ''}"
