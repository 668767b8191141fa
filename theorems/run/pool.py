"""Pool of processes that work on units.

A process that dies is replaced; one that takes too long is killed with all that it started.

Neither pebble nor loky will do. Both answer with the result of a task and with nothing on the way: no heartbeat, and
nothing is left of a unit whose process dies. loky gives up all tasks when one process dies, and does not say whose it
was; pebble ends a process, but not those that it started, and its workers share a pipe, which a process that is killed
within a message leaves in pieces for the others. The pool needs little: a ``subprocess`` with pipes of its own.
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
"""Seconds between two looks at signals and clocks."""
TRIES = 3
"""The largest number of attempts at a unit whose processes die.

Untrusted code that ends its process is begun only once. Signal 9 comes from outside, and may have hit the wrong
process.
"""
PATIENCE = 60.0
"""Seconds that untrusted code may take for one case: a thousand times what a case takes on a kernel, and long enough
for a first call that compiles.
"""
STARTING = 60.0
"""Seconds that a process may take to import what it needs, on a busy machine."""
NO_RESULT = "sent something that is no result"
"""The reason given where a process sends anything but the messages of :func:`theorems.run.worker.serve`."""
CLOSING = 1.0
"""Seconds after the end of a process within which all that it has sent is read."""
ENDING = 5.0
"""Seconds that a process has to end the processes that it has started, before it is killed itself."""
LARGEST_MESSAGE = 1 << 25
"""Largest message, in bytes, of a process with untrusted code: JSON takes up to thirty times its length in memory."""
MOST_MESSAGES = 50_000
"""Most messages of a unit of untrusted code without a step forward: making a case smaller takes some hundreds."""
PER_SECOND = 10_000
"""Most messages for every second of such a unit: the steps of our own units take longer."""
AT_A_LOOK = 1000
"""Messages that are taken between two looks at signals and clocks."""
WAITING = 16
"""Most messages that wait to be taken; a process that sends more waits, too."""
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from theorems.run.worker import serve, watch; watch(); serve()"
"""The program of a process, which is given the id of this one: it imports what this one would."""

Tell = Callable[[int, str, Any], None]
_Message = tuple[int, str, Any] | str
"""A number, a word and its value; or a reason why nothing more comes, empty at the end of the process."""


class NoResult(Exception):
    """A message of a process is no result of its unit."""


@dataclass(eq=False)
class _Worker:
    """One process.

    Attributes:
        unit: what it works on; None while it has nothing to do.
        holds: groups of units that share what it computes for them.
        number: the number of the latest unit sent to it; messages carry it, so that late ones can be ignored.
        messages: how many messages about that unit have come by now.
        steps, stepped: the most steps of it that were done, and how many messages there were then.
        untrusted: whether that unit is untrusted code.
        tainted: whether it ever ran untrusted code, which may have changed anything there.
        began: when it began with the unit; None while it still imports what the unit needs.
        active: when it last sent something.
        ended: when its end was noticed, while what it sent is still being read.
        is_removed: whether nobody takes what it sends.
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
        """Kill the process with all that it started, which may hold our output open; on Linux it ends those itself."""
        if sys.platform == "linux":
            self.process.terminate()
            return
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()


class Pool:
    """Up to ``size`` processes; they are started when there is work for them, and end with ``close()``."""

    def __init__(self, size: int) -> None:
        """Take the largest number of processes, and start none yet."""
        self._size = size
        self._workers: list[_Worker] = []
        self._deaths: Counter[int] = Counter()
        self._inbox: Queue[tuple[_Worker, _Message]] = Queue(WAITING)

    def work(
        self,
        order: Sequence[int],
        unit: Callable[[int], Any],
        tell: Tell,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE,
    ) -> Iterator[None]:
        """Work on units until all are finished, failed or out of time; yield after every look at the processes.

        Args:
            order: the numbers of the units.
            unit: returns the unit of a number as it is now; None if it need not be done.
            tell: called with the number, a word and a value: those of :func:`theorems.run.worker.serve`,
                ``out of time`` (None), ``out of patience`` (None), ``again`` or ``died`` (how). It raises
                :class:`NoResult` for an object that is no result.
            timeout: seconds after which a unit is ended.
            patience: seconds without a message after which a unit that is ``foreign`` is ended.

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
                    self._send(*assignment, unit, tell)
                for worker, message in self._receive():
                    number = self._take(worker, message, tell)
                    if number is not None:
                        waiting.appendleft(number)
                waiting.extendleft(self._look_at_processes(tell))
                self._end_late_ones(tell, timeout, patience)
                yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.close()  # what they work on is of no use to anybody
            raise

    def interrupt(self, tell: Tell, seconds: float) -> None:
        """Pass a signal on to the units that are worked on, and take what they send for so many seconds."""
        for worker in self._workers:
            if worker.unit is not None:
                worker.process.send_signal(signal.SIGINT)
        until = time.monotonic() + seconds
        while any(worker.unit is not None for worker in self._workers) and time.monotonic() < until:
            for worker, message in self._receive():
                self._take(worker, message, tell)
            self._look_at_processes(tell)

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

        A group of units stays with the process that began it: another one would compute again what they share.
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
                # What is trusted does not run where untrusted code ran before, which may have changed anything.
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
        # A signal that the terminal sends to all is for this process to handle, not for them.
        group: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
        command = [sys.executable, "-c", PROGRAM, str(os.getpid()), *map(str, sys.path)]
        with signals.hold_signals_back():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **group)
        worker = _Worker(process)
        threading.Thread(target=_read, args=(worker, self._inbox), daemon=True).start()
        self._workers.append(worker)
        return worker

    def _send(self, worker: _Worker, number: int, unit: Callable[[int], Any], tell: Tell) -> None:
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
            tell(number, "failed", f"{type(error).__name__}: {error}")
            return
        assert worker.process.stdin is not None
        with suppress(OSError):  # it is dead, and will be found to be
            worker.process.stdin.write(content)
            worker.process.stdin.flush()

    def _receive(self) -> Iterator[tuple[_Worker, _Message]]:
        """Yield the messages that have come by now from processes that still belong to this pool."""
        with suppress(Empty):
            delivery = self._inbox.get(timeout=LOOK)
            for _ in range(AT_A_LOOK):
                if delivery[0] in self._workers:
                    yield delivery
                delivery = self._inbox.get_nowait()
            if delivery[0] in self._workers:
                yield delivery

    def _take(self, worker: _Worker, message: _Message, tell: Tell) -> int | None:
        """Take one message; return the number of the unit if the process died and the unit has to begin again."""
        if isinstance(message, str):
            return self._remove(worker, tell, message)
        about, word, value = message
        number = worker.unit
        if number is None or about < worker.number:
            return None  # late: perhaps of a copy of the process
        now = time.monotonic()
        worker.active, worker.messages = now, worker.messages + 1
        if word == "progressed" and value > worker.steps:
            worker.steps, worker.stepped = value, worker.messages
        seconds = 1.0 + now - (worker.began or now)
        many = worker.messages - worker.stepped > MOST_MESSAGES or worker.messages > PER_SECOND * seconds
        if about > worker.number or (worker.untrusted and many):
            return self._remove(worker, tell, NO_RESULT)
        if word == "begun":
            worker.began = now
            return None
        try:
            if word in ("finished", "failed"):
                worker.unit = None
            tell(number, word, value)
        except NoResult:
            worker.unit = number
            return self._remove(worker, tell, NO_RESULT)
        return None

    def _remove(self, worker: _Worker, tell: Tell, why: str) -> int | None:
        """Remove a process that has ended or is of no use any more; return its unit if that begins again."""
        if why != NO_RESULT:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(LOOK)
            # One that is killed within a message leaves it in pieces: what ended it is to be said, not that.
            why = (why or "closed its connection") if worker.process.poll() is None else ""
        code = self._end(worker)
        number = worker.unit
        if number is None:
            return None
        if worker.untrusted and (why or not _from_outside(code)):
            tell(number, "died", why or _how(code))
            return None
        self._deaths[number] += 1
        if self._deaths[number] < TRIES:
            tell(number, "again", why or _how(code))
            return number
        tell(number, "died", f"{why or _how(code)}, {TRIES} times")
        return None

    def _look_at_processes(self, tell: Tell) -> list[int]:
        """Note which processes have ended, and read to the end what they sent.

        Processes that an ended one started may hold its pipe open.

        Returns:
            The units that begin again.
        """
        now = time.monotonic()
        for worker in self._workers:
            if worker.ended is None and worker.process.poll() is not None:
                worker.ended = now
                worker.kill()
        late = [worker for worker in self._workers if worker.ended is not None and now - worker.ended > CLOSING]
        again = [self._remove(worker, tell, "") for worker in late]
        return [number for number in again if number is not None]

    def _end_late_ones(self, tell: Tell, timeout: float | None, patience: float) -> None:
        for worker in list(self._workers):
            if worker.unit is None or worker.ended is not None:
                continue
            now = time.monotonic()
            late = timeout is not None and worker.began is not None and now - worker.began > timeout
            limit = patience if worker.began is not None else max(patience, STARTING)
            if late or (worker.untrusted and now - worker.active > limit):
                self._end(worker)
                tell(worker.unit, "out of time" if late else "out of patience", None)


def _read(worker: _Worker, inbox: Queue[tuple[_Worker, _Message]]) -> None:
    """Read the messages of a process, in a thread of its own.

    Untrusted code may send half a message, and nobody waits for the other half. Nothing that comes is unpickled or
    evaluated: a message is a line of JSON, and a line that is no message ends the process.
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
    """Put a message into the inbox; wait until there is room, or nobody takes anything of that process any more."""
    while not worker.is_removed:
        with suppress(Full):
            inbox.put((worker, message), timeout=1.0)
            return


def _parse(content: bytes) -> _Message:
    """Parse a line as a message.

    Raises:
        ValueError, RecursionError: it is no message.
    """
    message = json.loads(content, parse_constant=_refuse)
    if not (isinstance(message, list) and len(message) == 3 and type(message[0]) is int and type(message[1]) is str):
        raise ValueError("no message")
    number, word, value = message
    kinds = {"begun": type(None), "progressed": int, "so far": dict, "finished": dict, "failed": str}
    if type(value) is not kinds.get(word) or (type(value) is int and not 0 <= value < 1 << 53):
        raise ValueError("no message")
    return number, word, value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _reap(worker: _Worker) -> int:
    """Wait for a process that was killed or has ended, and return its exit code; it leaves the table of processes."""
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


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"was killed by {name}{', for memory perhaps' if _from_outside(code) else ''}"
