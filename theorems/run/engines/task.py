"""Tasks: units as they are sent to a worker, and the function with which it works on them.

A worker runs each unit in a process of its own, which it keeps: whatever a unit does there (untrusted code, a limit
of time, memory that runs out), the worker goes on and says so. Only the standard library is imported here, so that
nothing but that process needs to import the statements.
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
"""The last message about a unit: its word, its value, how many steps were done, and the finished work as JSON."""


@dataclass(frozen=True)
class Task:
    """A unit on its way to a worker.

    Attributes:
        content: the unit, pickled; opened only where the sources are known to be the same.
        address: the address of its result.
        foreign: whether it is untrusted code.
        timeout, patience: as in :func:`theorems.run.schedule.run`.
        surroundings: JSON of the sources and libraries that the result depends on.
        folder: the working directory of the coordinator, used where it exists.
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
class _Opened:
    """A unit in the process that runs it."""

    task: Task

    @property
    def foreign(self) -> bool:
        """Return whether it is untrusted code."""
        return self.task.foreign

    def run(self, progress: Any) -> dict[str, Any]:
        """Run the unit and return its result as JSON has it, or why it is refused."""
        from theorems.run.encoding import plain
        from theorems.run.identity import difference

        if why := difference(json.loads(self.task.surroundings)):
            return {"refused": f"the worker {socket.gethostname()} {why}"}
        unit = pickle.loads(self.task.content)

        def send(done: int, so_far: Any = None) -> None:
            progress(done, None if so_far is None else plain(so_far))

        return {"result": plain(unit.run(send))}

    def prepare(self) -> None:
        """Enter the working directory, and import before the unit's time runs what takes long to import."""
        with suppress(OSError):
            os.chdir(self.task.folder)
        if self.task.folder not in sys.path:
            sys.path.append(self.task.folder)
        import theorems.run.identity  # noqa: F401


def work(task: Task) -> Message:
    """Run the unit and return its final result."""
    steps, so_far, last = -1, None, ("died", "", -1, None)

    def tell(_: int, word: str, value: Any) -> None:
        nonlocal steps, so_far, last
        if word == "progressed":
            steps = value
        elif word == "so far":
            so_far = value
        elif word != "again":
            if word == "finished" and value.keys() not in ({"result"}, {"refused"}):
                raise NoResult
            last = (word, value, steps, None if word == "finished" else so_far)
            if word == "finished" and "result" in value and task.journals:
                append(task.journals, task.address, value["result"])

    if not hasattr(_OWN, "pool"):
        _OWN.pool = Pool(1)
    for _ in _OWN.pool.work([0], lambda _: _Opened(task), tell, timeout=task.timeout, patience=task.patience):
        pass
    return last


_OWN = threading.local()
"""The pool of a thread of this worker: its process is kept for the next task, and ends with the worker."""
