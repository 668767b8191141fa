"""A process that works on the units that it is sent, one after another, and does not outlive the one that sends them.

Units come on standard input and messages go to standard output, pickled. Only the standard library is imported here:
what is imported with a unit takes a second or more, and a process whose parent is killed meanwhile must end, too.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO

OFTEN = 0.1
"""Seconds between two messages about the progress of a unit: more often nobody looks."""
KEPT = 0.5
"""Seconds of work that are lost at most when a process is killed; of untrusted code none, every step is sent."""
_PR_SET_PDEATHSIG = 1

Send = Callable[[str, Any], None]


class Heartbeat:
    """The progress of a unit, sent no more often than it is looked at; ``always`` where any step may be the last."""

    def __init__(self, send: Send, *, always: bool = False) -> None:
        self._send = send
        self._always = always
        self._sent = self._kept = time.monotonic()

    def __call__(self, done: int, so_far: Any = None) -> None:
        now = time.monotonic()
        if self._always or now - self._sent >= OFTEN:
            self._sent = now
            self._send("progressed", done)
        if so_far is not None and (self._always or now - self._kept >= KEPT):
            self._kept = now
            self._send("so far", so_far)


def serve() -> None:
    """Receive units until standard input is closed, each pickled, with whether it is untrusted code.

    What becomes of one is sent as (word, value). The words are ``begun`` (what it needs is imported), ``progressed``
    (steps done), ``so far`` (what the unit need not do again), and at last ``finished`` (the result) or ``failed``
    (why).
    """
    end_with_parent()
    incoming, outgoing = _channel()
    received: SimpleQueue[tuple[bytes, bool]] = SimpleQueue()
    threading.Thread(target=_receive, args=(incoming, received), daemon=True).start()

    def send(word: str, value: Any) -> None:
        content = pickle.dumps((word, value))
        try:
            outgoing.write(content)
            outgoing.flush()
        except OSError:  # nobody reads it
            os._exit(1)

    environment = _Environment()
    while True:
        environment.restore()
        content, untrusted = received.get()
        try:
            unit = pickle.loads(content)
            if hasattr(unit, "prepare"):
                unit.prepare()
            single_threaded()
            send("begun", None)
            send("finished", unit.run(Heartbeat(send, always=untrusted)))
        except BaseException as error:
            send("failed", f"{type(error).__name__}: {error}".removesuffix(": "))


def _channel() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output, out of the way of the code that is run; what it prints goes to standard error."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    with suppress(OSError):
        os.fstat(2)
        nothing = 2
    os.dup2(nothing, 1)
    return incoming, outgoing


def _receive(incoming: BinaryIO, received: SimpleQueue[tuple[bytes, bool]]) -> None:
    """Take what is sent; at its end the parent is gone, or wants this process to be."""
    try:
        while True:
            received.put(pickle.load(incoming))
    except Exception:
        os._exit(1)


class _Environment:
    """What a unit may have changed for the next one: the working directory and the standard streams."""

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._stderr = os.dup(1)

    def restore(self) -> None:
        for name, number in (("stdout", 1), ("stderr", 2)):
            with suppress(OSError, ValueError, AttributeError):
                getattr(sys, name).flush()
            os.dup2(self._stderr, number)
            stream = open(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        with suppress(OSError):
            os.chdir(self._folder)


def single_threaded() -> None:
    """One thread per process: on small tensors more of them only get in each other's way."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def end_with_parent() -> None:
    """Linux ends this process when its parent ends, whatever it does; elsewhere the end of its input does.

    The first argument of the process is the id of its parent, which may be gone already.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(sys.argv[1]):
            os._exit(1)
