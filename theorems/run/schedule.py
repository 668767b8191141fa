"""Scheduling of units of work in this process or in others; the results do not depend on the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from typing import Any

from threadpoolctl import threadpool_limits

from max_margin_theorems import signals
from theorems.run.encoding import decoding
from theorems.run.engines.coordinator import Coordinator
from theorems.run.events import Handler, Notice
from theorems.run.journal import Journal
from theorems.run.pool import PATIENCE, MessageHandler, Pool
from theorems.run.unit_parts import Parts
from theorems.run.unit_protocols import R, StopRun, Work

REASONS = {
    "out of time": "out of time after {timeout:g} s{where}",
    "out of patience": "out of time after {patience:g} s{where}",
    "died": "the process that worked on it {value}{where}",
    "failed": "the process that worked on it failed{where}: {value}",
}
"""Reason why a unit has no complete result, by the kind of the last message about it."""


class Interrupted(Exception):
    """Exception: the run was interrupted by Ctrl-C, SIGTERM or SIGHUP.

    Attributes:
        results: one per unit; the results of unfinished units are marked as interrupted.
    """

    def __init__(self, results: list[Any]) -> None:
        """Take the results so far."""
        super().__init__("interrupted")
        self.results = results


def run(units: Sequence[Work[R]], jobs: int, handle: Handler, **options: Any) -> list[R]:
    """Run the units and return their results; the arguments are those of :func:`run_stepwise`."""
    steps = run_stepwise(units, jobs, handle, **options)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            results: list[R] = end.value
            return results


def run_stepwise(
    units: Sequence[Work[R]],
    jobs: int,
    handle: Handler,
    *,
    journal: Journal | None = None,
    timeout: float | None = None,
    enough: Callable[[R], str] | None = None,
    patience: float = PATIENCE,
    pool: Pool | None = None,
    engine: Coordinator | None = None,
) -> Generator[None, None, list[R]]:
    """Run the units, yield between steps, so that the caller can handle events, and return the results in order.

    Args:
        units: the units; a :class:`theorems.run.unit_protocols.Divisible` is run part by part.
        jobs: the number of processes; with 1 the units run in this process, unless there is a ``timeout`` or untrusted
            code.
        handle: called with an event for every step and every result.
        journal: the journal; results that it has are not computed again, and new results are appended.
        timeout: seconds after which a unit, or a part of a unit, is ended; its result is then computed from the
            finished cases.
        enough: returns the reason to stop after the result of a unit or part; empty to go on.
        patience: seconds without a message after which a unit of untrusted code is ended.
        pool: a running pool to use; by default one is started, which ends with the run.
        engine: workers on other machines, which run all units in place of processes of this machine.

    Raises:
        Interrupted: a signal came; the exception has the results so far.
    """
    signals.keep()
    parts = Parts(units, handle, journal, enough)
    foreign = any(getattr(unit, "foreign", False) for unit in units)
    # The later statements of a paper follow limits and take longest, so they run first; but a run that may stop early
    # begins with the quick statements.
    order = parts.order(backwards=enough is None)
    try:
        parts.check()
        if engine is None and (jobs == 1 or len(order) <= 1) and timeout is None and not foreign:
            yield from _one_after_another(parts, order)
        elif order:
            open_workers: Any = engine or pool
            with nullcontext(open_workers) if open_workers else closing(Pool(min(jobs, len(order)))) as workers:
                on_message = decoding(parts.by_number.__getitem__, _message_handler(parts, timeout, patience))
                # If the first urgent units end a run that may stop early, work on other units would be in vain.
                while enough and order and parts.is_urgent(order[0]) and not parts.any_upheld():
                    first, *order = order
                    yield from workers.work([first], parts.part_to_do, on_message, timeout=timeout, patience=patience)
                yield from workers.work(order, parts.part_to_do, on_message, timeout=timeout, patience=patience)
    except KeyboardInterrupt:
        raise Interrupted(parts.results("")) from None
    except StopRun as error:
        return parts.results(str(error))
    return parts.results("")


def _one_after_another(parts: Parts[R], order: list[int]) -> Generator[None, None, None]:
    for k in order:
        unit = parts.part_to_do(k)
        if unit is None:
            continue

        def progress(done: int, so_far: Any = None, k: int = k) -> None:
            with signals.shield_from_signals():
                parts.count_steps(k, done)
                if so_far is not None:
                    parts.so_far(k, so_far)

        # One thread: more threads would sum in another order, which rounds differently, and be slower.
        with threadpool_limits(1, "blas"), signals.interruptible():
            result = unit.run(progress)
        parts.finish(k, result)
        yield


def _message_handler(parts: Parts[R], timeout: float | None, patience: float) -> MessageHandler:
    """Return the handler of messages for :meth:`theorems.run.pool.Pool.work`, which records progress and results."""
    steps: dict[int, int] = {}

    def why(k: int, kind: str, value: Any) -> str:
        unit: Any = parts.by_number[k]
        where = f" {unit.where(steps.get(k))}" if getattr(unit, "foreign", False) else ""
        return REASONS[kind].format(where=where, value=value, timeout=timeout, patience=patience)

    def on_message(k: int, kind: str, value: Any) -> None:
        if kind == "progressed":
            steps[k] = value
            parts.count_steps(k, value)
        elif kind == "so far":
            parts.so_far(k, value)
        elif kind == "again":
            id = parts.by_number[k].id
            parts.handle(Notice(f"{id}: the process that worked on it {value}; it is restarted in another one."))
        elif kind == "finished":
            parts.finish(k, value)
        else:
            parts.give_up(k, parts.by_number[k].unfinished_result(why(k, kind, value)))

    return on_message
