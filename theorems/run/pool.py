"""Pool of processes that work on units.

A process that dies is replaced; a process that takes too long is killed, with all processes that it started.

The packages pebble and loky do not suffice. Both send nothing before the result of a task: there is no heartbeat, and
if a process dies, its finished work is lost. loky abandons all tasks when one process dies, and does not say which task
killed it. pebble ends a process, but not the processes that it started; its workers share a pipe, and a worker that is
killed in the middle of a message corrupts it for all. This pool needs only ``subprocess``, with a pipe for each
process.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import Any, NoReturn

from max_margin_theorems import signals

LOOK = 0.1
"""Seconds between two checks of signals and time limits."""
TRIES = 3
"""The largest number of attempts at a unit whose processes die.

Untrusted code that ends its process gets only one attempt, unless signal 9 killed the process: that signal comes from
outside, perhaps because other processes used up the memory.
"""
PATIENCE = 60.0
"""Seconds that untrusted code may take for one case.

This is a thousand times the usual time of a case on a kernel, and enough for a first call that compiles.
"""
STARTING = 60.0
"""Seconds that a process may take to import what it needs, on a busy machine."""
NO_RESULT = "sent something that is not a result"
"""The reason to report if a process sends anything except the messages of :func:`theorems.run.worker.serve`."""
CLOSING = 1.0
"""Seconds after the end of a process during which its last messages are read."""
ENDING = 5.0
"""Seconds that a process is given to end the processes that it has started, before it is killed itself."""
LARGEST_MESSAGE = 1 << 25
"""Largest message, in bytes, of a process with untrusted code: parsed JSON takes up to thirty times that memory."""
MOST_MESSAGES = 50_000
"""The most messages that untrusted code may send between two steps of a unit; shrinking sends some hundreds."""
PER_SECOND = 10_000
"""The largest number of messages of untrusted code per second; a step of a real unit takes more than 0.1 ms."""
AT_A_LOOK = 1000
"""The largest number of messages that are handled between two checks of signals and time limits."""
WAITING = 16
"""The largest number of messages in the inbox; a process that sends more has to wait."""
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from theorems.run.worker import serve, watch; watch(); serve()"
"""The program of a worker process; its arguments are the id of this process and ``sys.path``."""

MessageHandler = Callable[[int, str, Any], None]
_Message = tuple[int, str, Any] | str
"""A message: (number of a unit, kind, value); or the reason why no more messages come, empty if the process ended."""


class NoResult(Exception):
    """A process sent a message that is not a result of its unit."""


@dataclass(eq=False)
class _Worker:
    """One worker process; times are in seconds, of :func:`time.monotonic`.

    Attributes:
        unit: the number of the unit that it works on; None while it is idle.
        holds: groups of units that stay with this process, because they share intermediate results.
        number: the number of units sent to the process so far. The process repeats this number in its messages, so that
            a late message about an earlier unit is recognised.
        messages: the number of messages about the current unit.
        steps, stepped: the largest number of steps reported for the current unit, and the value of ``messages`` at that
            report.
        untrusted: whether the current unit is untrusted code.
        tainted: whether the process ever ran untrusted code, which may have changed its state.
        began: when it began the unit; None while it imports the unit's modules.
        active: when it last sent a message.
        ended: when the end of the process was noticed; its last messages are still read after that.
        is_removed: whether the process was removed from the pool, so that its messages are dropped.
    """

    process: subprocess.Popen[bytes]
    unit: int | None = None
    number: int = 0
    messages: int = 0
    stepped: int = 0
    steps: int = -1
    untrusted: bool = False
    tainted: bool = False
    began: float | None = None
    active: float = 0.0
    ended: float | None = None
    holds: set[str] = field(default_factory=set)
    is_removed: bool = False

    def kill(self) -> None:
        """Kill the process and all that it started; on Linux :func:`theorems.run.worker.watch` ends the latter."""
        if sys.platform == "linux":
            self.process.terminate()
            return
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()


class Pool:
    """Pool of up to ``size`` processes, which are started when there is work for them and end with ``close()``."""

    def __init__(self, size: int) -> None:
        """Take the largest number of processes; start none yet."""
        self._size = size
        self._workers: list[_Worker] = []
        self._deaths: Counter[int] = Counter()
        self._inbox: Queue[tuple[_Worker, _Message]] = Queue(WAITING)

    def work(
        self,
        order: Sequence[int],
        unit: Callable[[int], Any],
        on_message: MessageHandler,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE,
    ) -> Iterator[None]:
        """Work on units until all are finished, failed or out of time; yield after every check of the processes.

        Args:
            order: the numbers of the units.
            unit: a function that returns the unit with a given number in its current state; None if the unit need not
                be done.
            on_message: called with the number of a unit, a kind of message and its value. The kinds are those of
                :func:`theorems.run.worker.serve`, and ``out of time`` (None), ``out of patience`` (None), ``again`` or
                ``died`` (how the process ended). It raises :class:`NoResult` for a value that is not a result.
            timeout: seconds after which a unit is ended.
            patience: seconds without a message after which a unit of untrusted code (``foreign``) is ended.

        Raises:
            KeyboardInterrupt: a signal came.
        """
        waiting = deque(order)
        self._deaths.clear()
        try:
            while waiting or any(worker.unit is not None for worker in self._workers):
                if signals.signal_received():
                    raise KeyboardInterrupt
                while (assignment := self._next(waiting, unit)) is not None:
                    self._send(*assignment, unit, on_message)
                for worker, message in self._receive():
                    number = self._take(worker, message, on_message)
                    if number is not None:
                        waiting.appendleft(number)
                waiting.extendleft(self._look_at_processes(on_message))
                self._end_overdue(on_message, timeout, patience)
                yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            for worker in [worker for worker in self._workers if worker.unit is not None]:
                self._end(worker)  # nobody will read the result of its unit
            raise

    def interrupt(self, on_message: MessageHandler, seconds: float) -> None:
        """Interrupt the units being worked on, and handle their messages for ``seconds`` more."""
        for worker in self._workers:
            if worker.unit is not None:
                worker.process.send_signal(signal.SIGINT)
        until = time.monotonic() + seconds
        while any(worker.unit is not None for worker in self._workers) and time.monotonic() < until:
            for worker, message in self._receive():
                self._take(worker, message, on_message)
            self._look_at_processes(on_message)

    def close(self) -> None:
        """End all processes."""
        with signals.hold_signals_back():
            for worker in self._workers:
                worker.kill()
            for worker in self._workers:
                _reap(worker)
            self._workers.clear()

    def _next(self, waiting: deque[int], unit: Callable[[int], Any]) -> tuple[_Worker, int] | None:
        """Return an idle process and the number of the next unit for it; drop units that need not be done.

        A group of units stays with the process that began it, which has the intermediate results that they share.
        """
        free = [worker for worker in self._workers if worker.unit is None and worker.ended is None]
        if not free and len(self._workers) >= self._size:
            return None
        for number in tuple(waiting):
            candidate = unit(number)
            group = getattr(candidate, "together", "")
            holder = next((worker for worker in self._workers if group in worker.holds), None)
            if candidate is not None and holder is not None and holder not in free:
                continue
            waiting.remove(number)
            if candidate is not None:
                # A trusted unit never runs in a process that ran untrusted code, which may have changed its state.
                fit = [worker for worker in free if getattr(candidate, "foreign", False) or not worker.tainted]
                if not fit and len(self._workers) >= self._size:
                    self._end(free[0])
                worker = holder or (fit[0] if fit else self._spawn())
                worker.holds |= {group} if group else set()
                return worker, number
        return None

    def _end(self, worker: _Worker) -> int:
        """Remove a process and return its exit code."""
        self._workers.remove(worker)
        worker.kill()
        return _reap(worker)

    def _spawn(self) -> _Worker:
        # In a group of their own, workers do not receive the terminal's signals; this process handles these signals.
        group: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
        command = [sys.executable, "-c", PROGRAM, str(os.getpid()), *map(str, sys.path)]
        with signals.hold_signals_back():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **group)
        worker = _Worker(process)
        threading.Thread(target=_read, args=(worker, self._inbox), daemon=True).start()
        self._workers.append(worker)
        return worker

    def _send(self, worker: _Worker, number: int, unit: Callable[[int], Any], on_message: MessageHandler) -> None:
        worker.unit, worker.began, worker.active = number, None, time.monotonic()
        worker.number += 1
        worker.messages, worker.stepped, worker.steps = 0, 0, -1
        try:
            sent = unit(number)
            worker.untrusted = getattr(sent, "foreign", False)
            worker.tainted |= worker.untrusted
            content = pickle.dumps((worker.number, pickle.dumps(sent), worker.untrusted))
        except Exception as error:
            worker.unit = None
            on_message(number, "failed", f"{type(error).__name__}: {error}")
            return
        assert worker.process.stdin is not None
        with suppress(OSError):  # the process is dead, which _look_at_processes notices
            worker.process.stdin.write(content)
            worker.process.stdin.flush()

    def _receive(self) -> Iterator[tuple[_Worker, _Message]]:
        """Yield the messages in the inbox, up to :data:`AT_A_LOOK`, from processes that still belong to this pool."""
        with suppress(Empty):
            delivery = self._inbox.get(timeout=LOOK)
            for _ in range(AT_A_LOOK):
                if delivery[0] in self._workers:
                    yield delivery
                delivery = self._inbox.get_nowait()
            if delivery[0] in self._workers:
                yield delivery

    def _take(self, worker: _Worker, message: _Message, on_message: MessageHandler) -> int | None:
        """Handle one message; return the number of the unit if its process died and it must be restarted."""
        if isinstance(message, str):
            return self._remove(worker, on_message, message)
        about, kind, value = message
        number = worker.unit
        if number is None or about < worker.number:
            return None  # a late message, perhaps from a forked copy of the process
        now = time.monotonic()
        worker.active, worker.messages = now, worker.messages + 1
        if kind == "progressed" and value > worker.steps:
            worker.steps, worker.stepped = value, worker.messages
        seconds = 1.0 + now - (worker.began or now)
        is_flood = worker.messages - worker.stepped > MOST_MESSAGES or worker.messages > PER_SECOND * seconds
        if about > worker.number or (worker.untrusted and is_flood):
            return self._remove(worker, on_message, NO_RESULT)
        if kind == "begun":
            worker.began = now
            return None
        try:
            if kind in ("finished", "failed"):
                worker.unit = None
            on_message(number, kind, value)
        except NoResult:
            worker.unit = number
            return self._remove(worker, on_message, NO_RESULT)
        return None

    def _remove(self, worker: _Worker, on_message: MessageHandler, why: str) -> int | None:
        """Remove a process that has ended or misbehaved; return the number of its unit if that is restarted."""
        if why != NO_RESULT:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(LOOK)
            # An incomplete message may come from a process that was killed: then report the signal instead.
            why = (why or "closed its connection") if worker.process.poll() is None else ""
        code = self._end(worker)
        number = worker.unit
        if number is None:
            return None
        if worker.untrusted and (why or not _from_outside(code)):
            on_message(number, "died", why or _describe_exit(code))
            return None
        self._deaths[number] += 1
        if self._deaths[number] < TRIES:
            on_message(number, "again", why or _describe_exit(code))
            return number
        on_message(number, "died", f"{why or _describe_exit(code)}, {TRIES} times")
        return None

    def _look_at_processes(self, on_message: MessageHandler) -> list[int]:
        """Note which processes have ended, and remove them once their last messages have been read.

        A process is removed at the latest :data:`CLOSING` seconds after its end, since its child processes may hold its
        pipe open.

        Returns:
            The numbers of the units that are restarted.
        """
        now = time.monotonic()
        for worker in self._workers:
            if worker.ended is None and worker.process.poll() is not None:
                worker.ended = now
                worker.kill()
        overdue = [worker for worker in self._workers if worker.ended is not None and now - worker.ended > CLOSING]
        again = [self._remove(worker, on_message, "") for worker in overdue]
        return [number for number in again if number is not None]

    def _end_overdue(self, on_message: MessageHandler, timeout: float | None, patience: float) -> None:
        for worker in list(self._workers):
            if worker.unit is None or worker.ended is not None:
                continue
            now = time.monotonic()
            overdue = timeout is not None and worker.began is not None and now - worker.began > timeout
            limit = patience if worker.began is not None else max(patience, STARTING)
            if overdue or (worker.untrusted and now - worker.active > limit):
                self._end(worker)
                on_message(worker.unit, "out of time" if overdue else "out of patience", None)


def _read(worker: _Worker, inbox: Queue[tuple[_Worker, _Message]]) -> None:
    """Read the messages of a process, in a thread of its own.

    Untrusted code may send half a message; only this thread waits for the other half. Nothing is unpickled or
    evaluated: a message is a line of JSON, and a line that is not a message ends the process.
    """
    assert worker.process.stdout is not None
    why = ""
    with worker.process.stdout as stream:
        try:
            while content := stream.readline(LARGEST_MESSAGE if worker.tainted else -1):
                _put(inbox, worker, _parse(content))
        except OSError:
            pass
        except (ValueError, RecursionError, MemoryError):
            why = NO_RESULT if content.endswith(b"\n") or len(content) >= LARGEST_MESSAGE else ""
    _put(inbox, worker, why)


def _put(inbox: Queue[tuple[_Worker, _Message]], worker: _Worker, message: _Message) -> None:
    """Put a message into the inbox; wait until there is room, or the process has been removed."""
    while not worker.is_removed:
        with suppress(Full):
            inbox.put((worker, message), timeout=1.0)
            return


def _parse(content: bytes) -> _Message:
    """Parse a line as a message.

    Raises:
        ValueError, RecursionError: the line is not a message.
    """
    message = json.loads(content, parse_constant=_refuse)
    if not (isinstance(message, list) and len(message) == 3 and type(message[0]) is int and type(message[1]) is str):
        raise ValueError("not a message")
    number, kind, value = message
    types = {"begun": type(None), "progressed": int, "so far": dict, "finished": dict, "failed": str}
    if type(value) is not types.get(kind) or (type(value) is int and not 0 <= value < 1 << 53):
        raise ValueError("not a message")
    return number, kind, value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _reap(worker: _Worker) -> int:
    """Wait for a process that was killed or has ended, so that no zombie remains, and return its exit code."""
    worker.is_removed = True
    try:
        code = worker.process.wait(ENDING)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        code = worker.process.wait()
    assert worker.process.stdin is not None
    with suppress(OSError):
        worker.process.stdin.close()
    return code


def _from_outside(code: int) -> bool:
    return code < 0 and -code == getattr(signal, "SIGKILL", 0)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"was killed by {name}{', perhaps for lack of memory' if _from_outside(code) else ''}"
