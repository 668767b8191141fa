"""Tasks: units as they are sent to a worker, and the function that runs them there.

A worker runs units in a child process, which it keeps for the next unit. If the child fails (untrusted code, time
limit, lack of memory), the worker goes on and reports it. Only the standard library is imported here, so that only the
child imports the statements.
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
"""The last message about a unit: its kind, its value, the number of steps done, and the finished work as JSON."""


@dataclass(frozen=True)
class Task:
    """A unit as it is sent to a worker.

    Attributes:
        content: the unit, pickled; unpickled only by a worker with the same sources.
        address: the address of its result, see :func:`theorems.run.identity.address`.
        foreign: whether it runs untrusted code.
        timeout, patience: as in :func:`theorems.run.schedule.run`.
        surroundings: JSON of the sources and libraries that the result depends on.
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
    """Task as a unit for the pool of a worker."""

    task: Task

    @property
    def foreign(self) -> bool:
        """Return whether the unit runs untrusted code."""
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
        """Enter the working directory, and import our modules before the time limit of the unit begins."""
        with suppress(OSError):
            os.chdir(self.task.folder)
        if self.task.folder not in sys.path:
            sys.path.append(self.task.folder)
        import theorems.run.identity  # noqa: F401


def work(task: Task) -> Message:
    """Run the unit of a task in a child process and return the last message about it."""
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
"""The pool of each thread of this worker; its process is kept for the next task, and ends with the worker."""
