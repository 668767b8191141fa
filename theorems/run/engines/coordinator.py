"""Coordinator of a run on an engine (a cluster): it submits units of work and collects their results.

A unit whose result is in a journal is not run again, even if the coordinator or a worker has died since.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from max_margin_theorems import signals
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from theorems.run.engines.dask_cluster import OnDask
from theorems.run.engines.dask_task import Answer
from theorems.run.engines.task import Message, Task
from theorems.run.engines.union import folder_of, union
from theorems.run.identity import SHARED, address
from theorems.run.pool import LOOK, NO_RESULT, PATIENCE, TRIES, MessageHandler, NoResult
from theorems.run.unit_protocols import StopRun

OVER = "out of time"
"""The reason reported for units of work that were unfinished when the function ``until`` returned true."""
LOCAL = "local"
"""The value of ``--engine`` that means processes of this machine instead of a cluster."""
WINDOW = 1000
"""Largest number of unfinished tasks: more than most clusters have cores, few enough to cancel quickly."""


class Coordinator:
    """Counterpart of :class:`theorems.run.pool.Pool` that runs units of work on the workers of an engine.

    Attributes:
        until: a function, called often; if it returns true, the run stops although units are unfinished.
    """

    def __init__(self, engine: OnDask, run: Mapping[str, Any], journal: Path | None = None) -> None:
        """Take the engine, the identity of the run, and the path of its journal.

        Args:
            engine: the engine that runs the units of work.
            run: the identity of the run, see :func:`theorems.run.identity.identity`.
            journal: the path NAME of the run's journal; None for none. A worker that can write to the folder
                ``NAME.workers`` beside it keeps its own journal in that folder.
        """
        self.until: Callable[[], bool] = lambda: False
        self._engine = engine
        self._run = run
        self._surroundings = to_json({name: run[name] for name in SHARED if name in run})
        self._folder = None if journal is None else folder_of(journal.absolute())
        self._known: dict[str, Any] = {}
        self._addresses: dict[int, str] = {}
        self._tries: Counter[int] = Counter()

    def work(
        self,
        order: Sequence[int],
        unit: Callable[[int], Any],
        on_message: MessageHandler,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE,
    ) -> Iterator[None]:
        """Run units as :meth:`theorems.run.pool.Pool.work` does, and pass each message about a unit to ``on_message``.

        Raises:
            KeyboardInterrupt: a signal came.
            StopRun: ``until`` returned true, or the scheduler cannot be reached any more.
            InvalidInput: a worker's sources or libraries differ from ours.
        """
        waiting, out = deque(order), dict[Answer, int]()
        self._tries.clear()
        self._addresses.clear()
        self._read_journals()
        try:
            while True:
                while waiting and len(out) < WINDOW:
                    k = waiting.popleft()
                    if (task := self._task(k, unit(k), on_message, timeout, patience)) is not None:
                        out[self._engine.submit(task)] = k
                if not out and not waiting:
                    return
                if signals.signal_received():
                    raise KeyboardInterrupt
                if self.until():
                    raise StopRun(OVER)
                if sentence := self._engine.look():
                    print(f"theorems: {sentence}", file=sys.stderr)
                lost: dict[int, str] = {}
                for answer in wait(out, LOOK, FIRST_COMPLETED).done:
                    k = out.pop(answer)
                    try:
                        message = answer.result()
                    except (Exception, CancelledError) as error:
                        lost[k] = f"was lost ({type(error).__name__}{f': {error}' if str(error) else ''})"
                    else:
                        self._take(k, message, unit(k), on_message)
                if lost:
                    waiting.extendleft(reversed(self._again(lost, on_message)))
                yield
        finally:
            for answer in out:
                answer.cancel()

    def _read_journals(self) -> None:
        if self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
            self._known = union(self._folder)

    def _task(
        self, k: int, unit: Any, on_message: MessageHandler, timeout: float | None, patience: float
    ) -> Task | None:
        """Return the task to submit for unit number k; None if the unit need not be run or a journal has its result."""
        if unit is None:
            return None
        its_address = self._addresses.setdefault(k, address(unit, self._run))
        if (stored := self._known.get(its_address)) is not None:
            with suppress(NoResult):  # the stored value is not a result: run the unit again
                on_message(k, "finished", stored)
                return None
        foreign = getattr(unit, "foreign", False)
        journals = str(self._folder or "")
        content = pickle.dumps(unit), its_address, foreign
        return Task(*content, timeout, patience, self._surroundings, os.getcwd(), journals)

    def _take(self, k: int, message: Message, unit: Any, on_message: MessageHandler) -> None:
        kind, value, done, so_far = message
        if unit is None:
            return
        if done >= 0:
            on_message(k, "progressed", done)
        if kind == "finished" and "refused" in value:
            raise InvalidInput(f"--engine: {value['refused']}.")
        try:
            if so_far is not None:
                on_message(k, "so far", so_far)
            on_message(k, kind, value["result"] if kind == "finished" else value)
        except NoResult:
            on_message(k, "died", NO_RESULT)

    def _again(self, lost: Mapping[int, str], on_message: MessageHandler) -> list[int]:
        """Return the numbers of the lost units that must be submitted again.

        A worker may have finished some of the units before it died; read the results of these from the worker's
        journal.
        """
        if reason := self._engine.back():
            raise StopRun(f"{reason}; go on with --resume")
        self._known = union(self._folder)
        again = []
        for k, why in lost.items():
            self._tries[k] += 1
            if self._tries[k] < TRIES or self._addresses[k] in self._known:
                on_message(k, "again", why)
                again.append(k)
            else:
                on_message(k, "died", f"{why}, {TRIES} times")
        return again


def engine_named(name: str) -> OnDask | None:
    """Return the engine that ``name``, dask://HOST:PORT, names; None if the name is :data:`LOCAL`.

    Raises:
        InvalidInput: the name is not an engine's, Dask is not installed, or no scheduler answers at the address.
    """
    if name == LOCAL:
        return None
    if name.startswith("dask://"):
        return OnDask(name.removeprefix("dask://"))
    raise InvalidInput(f"--engine: {name!r} is not one of local, dask://HOST:PORT.")


@contextmanager
def coordinator(name: str, run: Mapping[str, Any], journal: Path | None) -> Iterator[Coordinator | None]:
    """Yield the coordinator of a run on the engine ``name``; yield None if the run uses processes of this machine.

    Raises:
        InvalidInput: the engine cannot be used, see :func:`engine_named`.
    """
    engine = engine_named(name)
    if engine is None:
        yield None
        return
    try:
        yield Coordinator(engine, run, journal)
    finally:
        engine.close()
