"""Run many units of work, in this process or in others; the results do not depend on how many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from max_margin_theorems import stopping
from theorems.run.crew import PATIENCE, Crew, crew
from theorems.run.journal import Journal
from theorems.run.under_way import Telling, UnderWay
from theorems.run.work import Enough, R, Watcher, Work, Workers
from theorems.run.worker import single_threaded


class Interrupted(Exception):
    """Ctrl-C, SIGTERM or SIGHUP.

    Attributes:
        results: what there is so far, one per unit; those not finished are marked as interrupted.
    """

    def __init__(self, results: list[Any]) -> None:
        super().__init__("interrupted")
        self.results = results


def run(
    units: Sequence[Work[R]],
    jobs: int,
    watcher: Watcher,
    *,
    journal: Journal | None = None,
    timeout: float | None = None,
    enough: Callable[[R], str] | None = None,
    patience: float = PATIENCE,
    workers: Crew | None = None,
    engine: Workers | None = None,
) -> list[R]:
    """The results of the units, in their order.

    Args:
        units: the work; one that is a :class:`theorems.run.work.Whole` is done part by part.
        jobs: how many processes; 1 stays in this one, unless there is a ``timeout`` or somebody else's code.
        watcher: told of every case and every result.
        journal: what it holds is not done again; it is told what is finished.
        timeout: seconds after which a unit, or a part of one, is ended; what it had finished by then is its result.
        enough: why to stop after a result, also of a part; empty to go on.
        patience: the same for a step of a unit of somebody else's code.
        workers: processes that are there already, in place of others that end with the run.
        engine: what does all of the work in place of processes here.

    Raises:
        Interrupted: on a signal, with the results so far.
    """
    stopping.keep()
    runs = UnderWay(units, watcher, journal, enough)
    foreign = any(getattr(unit, "foreign", False) for unit in units)
    # The later statements of the paper follow limits and take longest: they go first. A run that stops at the first
    # result of a kind is after the quick ones.
    order = runs.order(backwards=enough is None)
    try:
        runs.check()
        if engine is None and (jobs == 1 or len(order) <= 1) and timeout is None and not foreign:
            _one_after_another(runs, order)
        elif order:
            told = Telling(runs, timeout, patience)
            given: Any = engine or workers
            with nullcontext(given) if given else crew(min(jobs, len(order))) as those:
                those.work(order, runs.wanted, told, timeout=timeout, patience=patience)
    except KeyboardInterrupt:
        raise Interrupted(runs.results("")) from None
    except Enough as found:
        return runs.results(str(found))
    return runs.results("")


def _one_after_another(runs: UnderWay[R], order: list[int]) -> None:
    single_threaded()
    for k in order:
        unit = runs.wanted(k)
        if unit is None:
            continue

        def progress(done: int, so_far: Any = None, k: int = k) -> None:
            with stopping.undisturbed():
                runs.progressed(k, done)
                if so_far is not None:
                    runs.so_far(k, so_far)

        with stopping.interruptible():
            result = unit.run(progress)
        runs.finished(k, result)
