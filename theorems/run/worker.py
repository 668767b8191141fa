"""Worker process: it runs units of work (a statement on its cases, for example) one after another.

A trusted process sends the units, pickled, on standard input. Because a unit may run untrusted code, the answers are
plain data: one line of JSON each, on standard output. On Linux a second process, the watcher, never runs a unit; it
waits for the worker to end, and then ends all processes that the worker leaves behind. This module imports only the
standard library: importing what a unit needs takes a second or more, and the worker must end even if its parent is
killed meanwhile.
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
"""Smallest number of seconds between two messages about a unit's progress; the pool looks at messages no more often."""
KEPT = 0.5
"""Smallest number of seconds between two messages with the result so far, unless one follows every step."""
LONGEST_REASON = 10_000
"""Largest number of characters in the message that says why a unit failed."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

Send = Callable[[str, Any], None]
_serves = False


def is_worker() -> bool:
    """Return whether this process is a pool's worker; such a process judges kernels, but must not run them itself."""
    return _serves


class Heartbeat:
    """Callback that sends the progress of a unit, at every step if ``always`` is true.

    Otherwise the progress is sent at most every :data:`OFTEN` seconds. ``always`` is true for untrusted code, which may
    end the process at any step.
    """

    def __init__(self, send: Send, *, always: bool = False) -> None:
        """Take ``send``, the function that sends a message, and ``always``, whether to send a message at every step."""
        self._send = send
        self._always = always
        self._sent = self._kept = time.monotonic()

    def __call__(self, done: int, so_far: Any = None) -> None:
        """Send ``done``, the number of finished steps, and from time to time ``so_far``, the result of these steps."""
        now = time.monotonic()
        if self._always or now - self._sent >= OFTEN:
            self._sent = now
            self._send("progressed", done)
        if so_far is not None and (self._always or now - self._kept >= KEPT):
            self._kept = now
            self._send("so far", so_far)


def serve() -> None:
    """Receive units, each pickled with its number and whether it is untrusted, and run them until the input is closed.

    Each message about a unit is a line of JSON, [number, kind, value]. The kinds are ``begun`` (the unit's modules are
    imported; value null), ``progressed`` (value: the number of finished steps), ``so far`` (value: the result of these
    steps, an object), and at the end ``finished`` (value: the result, an object) or ``failed`` (value: the reason, a
    string).
    """
    global _serves
    _serves = True
    incoming, outgoing = channel()
    received: SimpleQueue[tuple[int, bytes, bool]] = SimpleQueue()
    threading.Thread(target=_receive, args=(incoming, received), daemon=True).start()
    this_process, number = os.getpid(), 0

    def send(kind: str, value: Any) -> None:
        if os.getpid() != this_process:  # untrusted code forked this process, and the copy returned from the unit
            os._exit(0)
        content = _line(number, kind, value)
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
            import theorems.run.encoding  # noqa: F401 - before the time limit of the unit begins

            single_threaded()
            send("begun", None)
            send("finished", unit.run(Heartbeat(send, always=untrusted)))
        except BaseException as error:
            send("failed", f"{type(error).__name__}: {error}".removesuffix(": ")[:LONGEST_REASON])


def _line(number: int, kind: str, value: Any) -> bytes:
    if hasattr(type(value), "__dataclass_fields__"):
        from theorems.run.encoding import plain

        value = plain(value)
    return json.dumps([number, kind, value], allow_nan=False).encode() + b"\n"


def channel() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output as files; from now on the process has no input and prints to standard error."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    with suppress(OSError):
        os.fstat(2)
        nothing = 2
    os.dup2(nothing, 1)
    return incoming, outgoing


def _receive(incoming: BinaryIO, received: SimpleQueue[tuple[int, bytes, bool]]) -> None:
    """Put arriving units into the queue; exit when the input ends, since then the parent is gone or closed it."""
    try:
        while True:
            received.put(pickle.load(incoming))
    except Exception:
        os._exit(1)


class _Environment:
    """State that is restored before each unit, since a unit may change it: working directory and standard streams."""

    def __init__(self) -> None:
        self._folder = ""
        with suppress(OSError):  # the working directory was deleted
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
    """Limit computations of NumPy and torch in this process to one thread: on small tensors more threads are slower."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def watch() -> None:
    """Fork into a watcher and a worker, which end, with all processes that they started, when their parent ends.

    This needs Linux. The function returns in the worker only. The watcher becomes the parent of every process that the
    worker leaves behind, even of a process in another session, ends all of them, and exits with the worker's exit code.
    On other systems the function does nothing: the worker ends when its input ends, and the parent ends the worker's
    process group.

    The first command-line argument is the id of the parent process, which may have ended already.
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
    """Wait for the worker process ``child`` and end as it ends; pass SIGINT on to the child, and kill it on SIGTERM."""
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
            os.waitpid(-1, 0)  # the ended process's children are now children of this process
    end_as(code)


def end_as(code: int) -> NoReturn:
    """End this process as another one ended: with the exit code ``code``, or by signal ``-code`` if it is negative."""
    if code < 0:
        with suppress(ImportError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # the handler of SIGKILL cannot be set
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def _children() -> list[int]:
    """Return the ids of all child processes of this process, including ended ones not yet waited for."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(path.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(path.parent.name))
    return children


def _end_with_parent(parent: int, signal_number: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(1)
