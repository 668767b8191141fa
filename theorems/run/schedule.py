"""Scheduling of many units of work, in this process or in others; the results do not depend on how many."""

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
from theorems.run.pool import PATIENCE, Pool, Tell
from theorems.run.unit_parts import Parts
from theorems.run.unit_protocols import R, StopRun, Work

WHY = {
    "out of time": "out of time after {timeout:g} s{where}",
    "out of patience": "out of time after {patience:g} s{where}",
    "died": "the process that worked on it {value}{where}",
    "failed": "the process that worked on it failed{where}: {value}",
}
"""Sentences that say what ended a unit, by the last word of its process."""


class Interrupted(Exception):
    """A run was interrupted by Ctrl-C, SIGTERM or SIGHUP.

    Attributes:
        results: the results so far, one per unit; those not finished are marked as interrupted.
    """

    def __init__(self, results: list[Any]) -> None:
        """Take the results so far."""
        super().__init__("interrupted")
        self.results = results


def run(units: Sequence[Work[R]], jobs: int, handle: Handler, **how: Any) -> list[R]:
    """Run the units to the end, as :func:`run_stepwise` does, and return their results."""
    steps = run_stepwise(units, jobs, handle, **how)
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
    """Run the units and return their results, in their order; whoever iterates sees events between the steps.

    Args:
        units: the work; a :class:`theorems.run.unit_protocols.Divisible` is done part by part.
        jobs: how many processes; 1 stays in this one, unless there is a ``timeout`` or untrusted code.
        handle: is given an event for every step and every result.
        journal: what it holds is not done again; it keeps what is finished.
        timeout: seconds after which a unit, or a part of one, is ended; what it had finished by then is its result.
        enough: says why to stop after a result, also of a part; empty to go on.
        patience: seconds after which a step of a unit of untrusted code is ended.
        pool: processes that are there already, in place of others that end with the run.
        engine: what does all of the work in place of processes here.

    Raises:
        Interrupted: on a signal, with the results so far.
    """
    signals.keep()
    parts = Parts(units, handle, journal, enough)
    foreign = any(getattr(unit, "foreign", False) for unit in units)
    # The later statements of the paper follow limits and take longest: they go first. A run that stops at the first
    # result of a kind is after the quick ones.
    order = parts.order(backwards=enough is None)
    try:
        parts.check()
        if engine is None and (jobs == 1 or len(order) <= 1) and timeout is None and not foreign:
            yield from _one_after_another(parts, order)
        elif order:
            given: Any = engine or pool
            with nullcontext(given) if given else closing(Pool(min(jobs, len(order)))) as workers:
                tell = decoding(parts.left.__getitem__, _message_handler(parts, timeout, patience))
                yield from workers.work(order, parts.part_to_do, tell, timeout=timeout, patience=patience)
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

        # More threads add up in another order, and get in each other's way.
        with threadpool_limits(1, "blas"), signals.interruptible():
            result = unit.run(progress)
        parts.finish(k, result)
        yield


def _message_handler(parts: Parts[R], timeout: float | None, patience: float) -> Tell:
    """Return the function that handles the messages of the processes, for :meth:`theorems.run.pool.Pool.work`."""
    steps: dict[int, int] = {}

    def why(k: int, word: str, value: Any) -> str:
        unit: Any = parts.left[k]
        where = f" {unit.where(steps.get(k))}" if getattr(unit, "foreign", False) else ""
        return WHY[word].format(where=where, value=value, timeout=timeout, patience=patience)

    def tell(k: int, word: str, value: Any) -> None:
        if word == "progressed":
            steps[k] = value
            parts.count_steps(k, value)
        elif word == "so far":
            parts.so_far(k, value)
        elif word == "again":
            id = parts.left[k].id
            parts.handle(Notice(f"{id}: the process that worked on it {value}; it begins again in another."))
        elif word == "finished":
            parts.finish(k, value)
        else:
            parts.give_up(k, parts.left[k].unfinished_result(why(k, word, value)))

    return tell
