"""Tasks: units of work in the form sent to a worker on another machine, and the function that runs them there.

A worker runs units in a child process, and keeps this process for the next unit. If the child process fails (untrusted
code, time limit, lack of memory), the worker reports the failure and goes on. This module imports only the standard
library, so that the statements are imported only in the child process.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from theorems.run.engines.union import append
from theorems.run.pool import NoResult, Pool

Message = tuple[str, Any, int, Any]
"""Last message about a unit: the message's kind and value, the number of finished steps, and their result as JSON."""


@dataclass(frozen=True)
class Task:
    """Unit of work in the form sent to a worker.

    Attributes:
        content: the unit, pickled; unpickled only by a worker with the same sources.
        address: the digest under which the unit's result is stored, see :func:`theorems.run.identity.address`.
        foreign: whether the unit runs untrusted code.
        timeout, patience: the time limits of :func:`theorems.run.schedule.run`.
        surroundings: JSON of the digests of our sources and the versions of libraries on which the result depends.
        folder: the working directory of the coordinator, entered if it exists on the worker.
        journals: the folder of the workers' journals; empty for none.
    """

    content: bytes
    address: str
    foreign: bool
    timeout: float | None
    patience: float
    surroundings: str
    folder: str
    journals: str


@dataclass(frozen=True)
class _TaskUnit:
    """Task in the form of a unit of work, for the pool of processes that a worker keeps."""

    task: Task

    @property
    def foreign(self) -> bool:
        """Return whether the task's unit runs untrusted code."""
        return self.task.foreign

    def run(self, progress: Any) -> dict[str, Any]:
        """Run the unit and return its result as plain JSON values, or the reason why this worker refuses it."""
        from theorems.run.encoding import plain
        from theorems.run.identity import difference

        if why := difference(json.loads(self.task.surroundings)):
            return {"refused": f"the worker {socket.gethostname()} {why}"}
        unit = pickle.loads(self.task.content)

        def send(done: int, so_far: Any = None) -> None:
            progress(done, None if so_far is None else plain(so_far))

        return {"result": plain(unit.run(send))}

    def prepare(self) -> None:
        """Enter the coordinator's working directory and import our modules, before the unit's time limit begins."""
        with suppress(OSError):
            os.chdir(self.task.folder)
        if self.task.folder not in sys.path:
            sys.path.append(self.task.folder)
        import theorems.run.identity  # noqa: F401


def work(task: Task) -> Message:
    """Run the unit of a task in a child process and return the last message about the unit."""
    steps, so_far, last = -1, None, ("died", "", -1, None)

    def on_message(_: int, kind: str, value: Any) -> None:
        nonlocal steps, so_far, last
        if kind == "progressed":
            steps = value
        elif kind == "so far":
            so_far = value
        elif kind != "again":
            if kind == "finished" and value.keys() not in ({"result"}, {"refused"}):
                raise NoResult
            last = (kind, value, steps, None if kind == "finished" else so_far)
            if kind == "finished" and "result" in value and task.journals:
                append(task.journals, task.address, value["result"])

    if not hasattr(_THREAD, "pool"):
        _THREAD.pool = Pool(1)
    for _ in _THREAD.pool.work(
        [0], lambda _: _TaskUnit(task), on_message, timeout=task.timeout, patience=task.patience
    ):
        pass
    return last


_THREAD = threading.local()
"""For each thread of this worker, the pool whose child process runs the tasks; it is kept until the worker ends."""
