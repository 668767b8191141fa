"""Run many units of work in a few processes; the results do not depend on how many."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from reference_attention.files import from_json
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.registry.lookup import statement_named
from theorems.run.result import Result
from theorems.run.user_data import Given, as_text, case_of
from theorems.run.verify import Progress, verify_data, verify_generated


@runtime_checkable
class Finished(Protocol):
    """What a unit of work results in."""

    @property
    def id(self) -> str:
        """Of the unit."""

    @property
    def summary(self) -> str:
        """What came of it, in a few words."""


R = TypeVar("R", bound=Finished)
R_co = TypeVar("R_co", bound=Finished, covariant=True)


@runtime_checkable
class Work(Protocol[R_co]):
    """A unit of work: a pure function of its fields, which can be sent to another process."""

    @property
    def id(self) -> str:
        """Unique among the units of a run."""

    @property
    def total(self) -> int | None:
        """How many steps it takes; None if that is not known."""

    def run(self, progress: Progress) -> R_co:
        """The result; ``progress`` is called with the number of steps done."""

    def unfinished(self, why: str) -> R_co:
        """A result that says that it was interrupted or, if ``why`` is not empty, that its process failed."""


@dataclass(frozen=True)
class Unit:
    """One statement to verify; everything that its result depends on.

    Attributes:
        id: of the statement.
        examples: how many generated cases.
        seed: drives them.
        data: user data to check instead; ``None`` for generated cases.
        under_test: its functions must live in modules to be sent to other processes.
    """

    id: str
    examples: int
    seed: int
    data: Given | None = None
    under_test: Implementation = REFERENCE

    @property
    def total(self) -> int | None:
        """How many cases are tried, if that is known."""
        return None if self.data else self.examples

    def unfinished(self, why: str) -> Result:
        """The result of a unit that was interrupted, or whose process failed."""
        statement = statement_named(self.id)
        result = Result(statement.id, statement.title, generated=self.data is None, interrupted=not why)
        return replace(result, counts={Verdict.INCONCLUSIVE: 1}, reasons={Verdict.INCONCLUSIVE: why}) if why else result

    def run(self, progress: Progress) -> Result:
        """The result."""
        if self.data is not None:
            return verify_data(self.id, self.data, self.under_test, progress)
        return verify_generated(self.id, self.examples, self.seed, self.under_test, progress)

    def __getstate__(self) -> dict[str, Any]:
        # Cases hold read-only mappings, which do not pickle; their JSON is exact.
        data = self.data and (as_text(self.data.case, case_of="sent"), self.data.failed)
        return {**self.__dict__, "data": data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["data"] is not None:
            text, failed = state["data"]
            state["data"] = Given(case_of(from_json(text)), failed)
        self.__dict__.update(state)


@runtime_checkable
class Watcher(Protocol):
    """Told how the work goes on."""

    def progressed(self, id: str, done: int) -> None:
        """So many steps of the unit are done."""

    def finished(self, result: Finished) -> None:
        """A unit is done."""


class Interrupted(Exception):
    """Ctrl-C.

    Attributes:
        results: what there is so far, one per unit; those not finished are marked as interrupted.
    """

    def __init__(self, results: list[Any]) -> None:
        super().__init__("interrupted")
        self.results = results


def run(units: Sequence[Work[R]], jobs: int, watcher: Watcher) -> list[R]:
    """The results of the units, in their order.

    Args:
        units: the work.
        jobs: how many processes; 1 stays in this one.
        watcher: told of every case and every result.

    Raises:
        Interrupted: on Ctrl-C, with the results so far.
    """
    done: dict[int, R] = {}
    # The later statements of the paper follow limits and take longest: they go first.
    order = list(reversed(range(len(units))))
    try:
        if jobs == 1 or len(units) == 1:
            _single_threaded()
            for k in order:
                done[k] = units[k].run(partial(watcher.progressed, units[k].id))
                watcher.finished(done[k])
        else:
            _run_in_processes(units, order, jobs, watcher, done)
    except KeyboardInterrupt:
        raise Interrupted([done.get(k) or unit.unfinished("") for k, unit in enumerate(units)]) from None
    return [done[k] for k in range(len(units))]


def _run_in_processes(
    units: Sequence[Work[R]], order: list[int], jobs: int, watcher: Watcher, done: dict[int, R]
) -> None:
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(units)), context, _start_worker, (messages,))
    try:
        # The processes start at the first submission; Ctrl-C is for this process to handle, not for them.
        with _deaf_to_interrupts():
            waiting: dict[Future[R], int] = {pool.submit(_work, units[k]): k for k in order}
        while waiting:
            ready, _ = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
            _pass_on(messages, watcher)
            for future in ready:
                k = waiting.pop(future)
                done[k] = _result_of(future, units[k])
                watcher.finished(done[k])
    except BaseException:
        # Work in progress is of no use any more and may take minutes.
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        messages.close()


def _result_of(future: Future[R], unit: Work[R]) -> R:
    """The result; a process that died (killed for memory, say) leaves an inconclusive one."""
    try:
        return future.result()
    except Exception as error:
        return unit.unfinished(f"the process that worked on it failed, {type(error).__name__}: {error}")


def _pass_on(messages: Any, watcher: Watcher) -> None:
    latest: dict[str, int] = {}
    with suppress(queue.Empty):
        while True:
            id, count = messages.get_nowait()
            latest[id] = count
    for id, count in latest.items():
        watcher.progressed(id, count)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, which alone hears of Ctrl-C
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_messages: Any = None


def _start_worker(messages: Any) -> None:
    global _messages
    _messages = messages
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _single_threaded()


def _work(unit: Work[R]) -> R:
    return unit.run(lambda count: _messages.put((unit.id, count)))


def _single_threaded() -> None:
    """One thread per process: on small tensors more of them only get in each other's way."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
