"""Work in a forked process, which tells what it finds a line at a time."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Tell = Callable[[Any], None]

MEMORY = 4 * 2**30
"""Bytes that a forked process may hold more than its parent did."""


class Died(Exception):
    """The process ended otherwise than by coming to its end.

    Attributes:
        by_time: for its time.
    """

    def __init__(self, by_time: bool) -> None:
        super().__init__("out of time" if by_time else "died")
        self.by_time = by_time


def told_by(work: Callable[[Tell], None], seconds: float = float("inf")) -> Iterator[Any]:
    """What a forked process tells, as it tells it.

    Args:
        work: is given a function that tells something that JSON can hold.
        seconds: after which it is killed; processor time is the work's own to limit, see :func:`limit`.

    Raises:
        Died: after what it told.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _alone(lambda: work(lambda told: _write(write, told)))
    os.close(write)
    rest, deadline, killed = b"", time.monotonic() + seconds, False
    while True:
        left = deadline - time.monotonic()
        ready = select.select([read], [], [], max(0.0, left) if left < 1e6 else None)[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
            killed = True
        piece = os.read(read, 65536)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        yield from map(json.loads, lines)
    os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        raise Died(killed or code == -signal.SIGPROF)


def limit(seconds: float) -> None:
    """End this process when it has taken so much processor time from now on, also within a library."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _write(file: int, told: Any) -> None:
    content = json.dumps(told).encode() + b"\n"
    while content:
        content = content[os.write(file, content) :]


def _alone(work: Callable[[], None]) -> None:
    """The life of the forked process: whatever happens, it ends here."""
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)
