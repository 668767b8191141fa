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
from typing import Any

OFTEN = 0.1
"""Seconds between two messages about a unit that is under way: more often nobody looks."""
KEPT = 0.5
"""Seconds of work that are lost at most when a process is killed."""
_PR_SET_PDEATHSIG = 1


class Telling:
    """The progress of a unit, said no more often than it is looked at."""

    def __init__(self, tell: Callable[[str, Any], None]) -> None:
        self._tell = tell
        self._said = self._kept = time.monotonic()

    def __call__(self, done: int, so_far: Any = None) -> None:
        now = time.monotonic()
        if now - self._said >= OFTEN:
            self._said = now
            self._tell("progressed", done)
        if so_far is not None and now - self._kept >= KEPT:
            self._kept = now
            self._tell("so far", so_far)


def serve(connection: Connection, parent: int) -> None:
    """Receive units until the connection is closed; send what becomes of each as (word, value).

    The words are ``begun``, ``progressed`` (steps done), ``so far`` (what the unit need not do again), and at last
    ``finished`` (the result) or ``failed`` (why).
    """
    end_with(parent)
    while True:
        try:
            unit = connection.recv()
            single_threaded()
            connection.send(("begun", None))
            result = unit.run(Telling(lambda word, value: connection.send((word, value))))
            connection.send(("finished", result))
        except EOFError:
            os._exit(0)
        except OSError:
            os._exit(1)
        except BaseException as error:
            connection.send(("failed", f"{type(error).__name__}: {error}"))


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
