"""Worker process: it works on units one after another, and does not outlive the process that sends them.

Units come on standard input, pickled by a process that is trusted. Plain data go back on standard output, a line of
JSON each, because a unit may run untrusted code. On Linux a second process, which never runs a unit, waits for the
process that does, and ends whatever that leaves behind. Only the standard library is imported here: imports with a unit
take a second or more, and a process whose parent is killed meanwhile must end, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn

OFTEN = 0.1
"""Seconds between two messages about the progress of a unit: nobody looks more often."""
KEPT = 0.5
"""Seconds between two messages about the finished work; with untrusted code there is one for every step."""
LONGEST_REASON = 10_000
"""Most characters of the reason why a unit failed."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

Send = Callable[[str, Any], None]
_serves = False


def is_worker() -> bool:
    """Return whether this process is one of a pool, so that untrusted code is not to run beside its judge."""
    return _serves


class Heartbeat:
    """Progress of a unit, sent no more often than it is looked at; ``always`` where any step may be the last."""

    def __init__(self, send: Send, *, always: bool = False) -> None:
        """Take how messages are sent, and measure the time between them from now on."""
        self._send = send
        self._always = always
        self._sent = self._kept = time.monotonic()

    def __call__(self, done: int, so_far: Any = None) -> None:
        """Send how many steps are done and, now and then, the finished work."""
        now = time.monotonic()
        if self._always or now - self._sent >= OFTEN:
            self._sent = now
            self._send("progressed", done)
        if so_far is not None and (self._always or now - self._kept >= KEPT):
            self._kept = now
            self._send("so far", so_far)


def serve() -> None:
    """Receive units until standard input is closed, each pickled, with its number and whether it is untrusted code.

    The progress of a unit is sent as [number, word, value], a line of JSON. The words are ``begun`` (what it needs is
    imported, null), ``progressed`` (steps done), ``so far`` (the finished work, an object), and at last
    ``finished`` (the result, an object) or ``failed`` (why, a text).
    """
    global _serves
    _serves = True
    incoming, outgoing = channel()
    received: SimpleQueue[tuple[int, bytes, bool]] = SimpleQueue()
    threading.Thread(target=_receive, args=(incoming, received), daemon=True).start()
    this_process, number = os.getpid(), 0

    def send(word: str, value: Any) -> None:
        if os.getpid() != this_process:  # a copy of this process that untrusted code made, and let return
            os._exit(0)
        content = _line(number, word, value)
        try:
            outgoing.write(content)
            outgoing.flush()
        except OSError:  # nobody reads it
            os._exit(1)

    environment = _Environment()
    while True:
        environment.restore()
        number, content, untrusted = received.get()
        try:
            unit = pickle.loads(content)
            if hasattr(unit, "prepare"):
                unit.prepare()
            import theorems.run.encoding  # noqa: F401 - before its time runs

            single_threaded()
            send("begun", None)
            send("finished", unit.run(Heartbeat(send, always=untrusted)))
        except BaseException as error:
            send("failed", f"{type(error).__name__}: {error}".removesuffix(": ")[:LONGEST_REASON])


def _line(number: int, word: str, value: Any) -> bytes:
    if hasattr(type(value), "__dataclass_fields__"):
        from theorems.run.encoding import plain

        value = plain(value)
    return json.dumps([number, word, value], allow_nan=False).encode() + b"\n"


def channel() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output, out of the way of the code that is run: it prints to standard error instead."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    with suppress(OSError):
        os.fstat(2)
        nothing = 2
    os.dup2(nothing, 1)
    return incoming, outgoing


def _receive(incoming: BinaryIO, received: SimpleQueue[tuple[int, bytes, bool]]) -> None:
    """Receive what is sent; at its end the parent is gone, or wants this process to be."""
    try:
        while True:
            received.put(pickle.load(incoming))
    except Exception:
        os._exit(1)


class _Environment:
    """State that a unit may have changed for the next one: the working directory and the standard streams."""

    def __init__(self) -> None:
        self._folder = ""
        with suppress(OSError):  # it is deleted
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
    """Limit a process to one thread: on small tensors more of them only get in each other's way."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def watch() -> None:
    """End with the parent, whatever is done here, and with it all processes that were started here.

    This works on Linux only: this process becomes two, and the caller is the process that works. The other adopts
    whatever outlives its parent there, also in a session of its own, and ends as the working process ends. Elsewhere
    the end of its input ends the process, and the parent ends its group.

    The first argument of the process is the id of its parent, which may be gone already.
    """
    if sys.platform != "linux":
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _end_with_parent(int(sys.argv[1]), signal.SIGTERM)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    watcher, child = os.getpid(), os.fork()
    if child:
        _watch(child)
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _end_with_parent(watcher, signal.SIGKILL)


_WATCHED = {getattr(signal, name) for name in ("SIGCHLD", "SIGINT", "SIGTERM") if hasattr(signal, name)}


def _watch(child: int) -> NoReturn:
    """Wait for the process that works: pass on an interrupt, end it when asked to, and end as it does."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    code: int | None = None
    while code is None:
        number = signal.sigwait(_WATCHED)
        if number == signal.SIGCHLD:
            with suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    code = os.waitstatus_to_exitcode(ended[1]) if ended[0] == child else code
        else:
            os.kill(child, signal.SIGINT if number == signal.SIGINT else signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            for pid in _children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)  # what an ended one leaves is a child of this process now
    end_as(code)


def end_as(code: int) -> NoReturn:
    """End this process as another one ended: with its exit code, or by the signal whose negative number is given."""
    if code < 0:
        with suppress(ImportError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # of SIGKILL there is no other action
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def _children() -> list[int]:
    """Return the processes whose parent is this one, running or not."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(path.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(path.parent.name))
    return children


def _end_with_parent(parent: int, how: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        os._exit(1)
