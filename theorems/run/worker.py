"""A process that works on the units that it is sent, one after another, and does not outlive the one that sends them.

Only the standard library is imported here: what is imported with a unit takes a second or more, and a process whose
parent is killed meanwhile must end, too.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

OFTEN = 0.1
"""Seconds between two messages about a unit that is under way: more often nobody looks."""
KEPT = 0.5
"""Seconds of work that are lost at most when a process is killed; of somebody else's code none, every step is told."""
_PR_SET_PDEATHSIG = 1


class Telling:
    """The progress of a unit, said no more often than it is looked at; ``always`` where any step may be the last."""

    def __init__(self, tell: Callable[[str, Any], None], *, always: bool = False) -> None:
        self._tell = tell
        self._always = always
        self._said = self._kept = time.monotonic()

    def __call__(self, done: int, so_far: Any = None) -> None:
        now = time.monotonic()
        if self._always or now - self._said >= OFTEN:
            self._said = now
            self._tell("progressed", done)
        if so_far is not None and (self._always or now - self._kept >= KEPT):
            self._kept = now
            self._tell("so far", so_far)


def serve(connection: Connection, parent: int) -> None:
    """Receive units until the connection is closed, each with whether it is somebody else's code.

    What becomes of one is sent as (word, value).

    The words are ``begun``, ``progressed`` (steps done), ``so far`` (what the unit need not do again), and at last
    ``finished`` (the result) or ``failed`` (why).
    """
    end_with(parent)
    with suppress(OSError, AttributeError):
        os.setpgid(0, 0)  # what it starts ends with it
    _first_to_go()
    surroundings = _Surroundings()
    while True:
        try:
            surroundings.restore()
            unit, foreign = connection.recv()
            single_threaded()
            connection.send(("begun", None))
            result = unit.run(Telling(lambda word, value: connection.send((word, value)), always=foreign))
            connection.send(("finished", result))
        except EOFError:
            os._exit(0)
        except OSError:
            os._exit(1)
        except BaseException as error:
            connection.send(("failed", f"{type(error).__name__}: {error}".removesuffix(": ")))


class _Surroundings:
    """What a unit may have changed for the next one: the working directory and the standard streams.

    What is printed goes to standard error: standard output is the report's.
    """

    def __init__(self) -> None:
        self._folder = os.getcwd()
        try:
            self._stderr = os.dup(2)
        except OSError:  # closed by the caller
            self._stderr = os.open(os.devnull, os.O_WRONLY)

    def restore(self) -> None:
        for name, number in (("stdout", 1), ("stderr", 2)):
            with suppress(OSError, ValueError, AttributeError):
                getattr(sys, name).flush()
            os.dup2(self._stderr, number)
            stream = open(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        with suppress(OSError):
            os.chdir(self._folder)


def _first_to_go() -> None:
    """Where memory runs out, Linux is to end this process and not the one that tells of it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def single_threaded() -> None:
    """One thread per process: on small tensors more of them only get in each other's way."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def end_with(parent: int) -> None:
    """End when the parent does, however it ends: by the kernel's hand on Linux, by a thread that waits elsewhere."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_wait_for_the_end, daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _wait_for_the_end() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
