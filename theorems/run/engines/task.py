"""What is sent to a worker, and what it does with it.

A worker runs each unit in a process of its own, one that it keeps: whatever a unit does there (somebody else's code, a
limit of time, memory that runs out), the worker goes on and says so. Only the standard library is imported here, so
that nothing but that process needs to import the statements.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from theorems.run.engines.union import append
from theorems.run.pool import Pool

Said = tuple[str, Any, int, Any]
"""A last word on a unit, its value, how many steps were done, and what need not be done again as JSON has it."""


@dataclass(frozen=True)
class Sent:
    """A unit on its way.

    Attributes:
        content: the unit, pickled; opened only where the sources are known to be the same.
        address: of its result.
        foreign: whether it is somebody else's code.
    """

    content: bytes
    address: str
    foreign: bool


@dataclass(frozen=True)
class Task:
    """Units for one worker.

    Attributes:
        units: done one after another.
        timeout, patience: as in :func:`theorems.run.processes.run`.
        surroundings: JSON of the sources and libraries that the results depend on.
        folder: the working directory of the coordinator, used where it is there.
        journals: the folder of the workers' journals; empty for none.
    """

    units: tuple[Sent, ...]
    timeout: float | None
    patience: float
    surroundings: str
    folder: str
    journals: str


@dataclass(frozen=True)
class _Opened:
    """A unit in the process that runs it."""

    content: bytes
    surroundings: str
    folder: str
    foreign: bool
    so_far: Any

    def run(self, progress: Any) -> dict[str, Any]:
        """The result as JSON has it, or why it is refused."""
        from reference_attention.files import to_json
        from theorems.run.encoding import decoded, encoded, so_far_kind
        from theorems.run.engines.sameness import difference

        if why := difference(json.loads(self.surroundings)):
            return {"refused": f"the worker {socket.gethostname()} {why}"}
        unit = pickle.loads(self.content)
        if self.so_far is not None:
            unit = replace(unit, so_far=decoded(self.so_far, so_far_kind(unit)))

        def plain(value: Any) -> Any:
            return json.loads(to_json(encoded(value)))

        def tell(done: int, so_far: Any = None) -> None:
            progress(done, None if so_far is None else plain(so_far))

        return {"result": plain(unit.run(tell))}

    def prepare(self) -> None:
        """Where it runs; and what takes long to import is there before the time of the unit runs."""
        with suppress(OSError):
            os.chdir(self.folder)
        if self.folder not in sys.path:
            sys.path.append(self.folder)
        import theorems.run.engines.sameness  # noqa: F401


def work(task: Task) -> list[Said]:
    """Do the units; a last word on each."""
    said: dict[int, Said] = {}
    done: dict[int, int] = {}
    held: dict[int, Any] = {}

    def unit(k: int) -> _Opened:
        return _Opened(task.units[k].content, task.surroundings, task.folder, task.units[k].foreign, held.get(k))

    def tell(k: int, word: str, value: Any) -> None:
        if word == "progressed":
            done[k] = value
        elif word == "so far":
            held[k] = value
        elif word != "again":
            said[k] = (word, value, done.get(k, -1), None if word == "finished" else held.get(k))
            if word == "finished" and "result" in value and task.journals:
                append(task.journals, json.dumps({"address": task.units[k].address, **value}))

    if not hasattr(_OWN, "pool"):
        _OWN.pool = Pool(1)
    for _ in _OWN.pool.work(range(len(task.units)), unit, tell, timeout=task.timeout, patience=task.patience):
        pass
    return [said[k] for k in range(len(task.units))]


_OWN = threading.local()
"""The pool of a thread of this worker: its process is kept for the next task, and ends with the worker."""
