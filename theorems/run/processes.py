"""Run many units of work, in this process or in a few others; the results do not depend on how many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from max_margin_theorems import stopping
from reference_attention.files import from_json
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import Elsewhere
from theorems.registry.lookup import statement_named
from theorems.registry.suite import statements
from theorems.registry.user_file import is_in_a_file
from theorems.run.crew import PATIENCE, Crew, crew
from theorems.run.journal import Journal
from theorems.run.result import Result
from theorems.run.user_data import Given, as_text, subject_of
from theorems.run.verify import Progress, SoFar, verify_data, verify_generated
from theorems.run.worker import single_threaded


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
        so_far: what need not be done again; the result does not depend on it.
        lost: why its statement could not be read; it is not tried then.
        isolated: whether somebody else's code, if it is some, must run in another process.
    """

    id: str
    examples: int
    seed: int
    data: Given | None = None
    under_test: Implementation = REFERENCE
    so_far: SoFar | None = None
    lost: str = ""
    isolated: bool = True

    @property
    def foreign(self) -> bool:
        """Whether it runs somebody else's code, in a process that may die of it."""
        return self.isolated and (is_in_a_file(self.id) or isinstance(self.under_test, Elsewhere))

    def where(self, done: int | None) -> str:
        """Where it is when so many cases are done."""
        if done is None:
            return "while it was loaded"
        shrinking = self.so_far is not None and self.so_far.falsified is not None
        over = self.data is None and done >= self.examples
        return "while a case was made smaller" if shrinking or over else f"in case {done + 1}"

    @property
    def total(self) -> int | None:
        """How many cases are tried, if that is known."""
        return None if self.data else self.examples

    def unfinished(self, why: str) -> Result:
        """The result of a unit that was interrupted, or whose process failed: of the cases that were finished."""
        statement = statement_named(self.id)
        begun = self.so_far.result if self.so_far else Result(statement.id, statement.title)
        return replace(begun, generated=self.data is None, interrupted=not why, stopped=why or "interrupted")

    def run(self, progress: Progress) -> Result:
        """The result."""
        statement_named(self.id)
        progress(self.so_far.result.examples if self.so_far else 0)
        if self.data is not None:
            return verify_data(self.id, self.data, self.under_test, progress, self.so_far)
        return verify_generated(self.id, self.examples, self.seed, self.under_test, progress, self.so_far)

    def __getstate__(self) -> dict[str, Any]:
        # Cases hold read-only mappings, which do not pickle; their JSON is exact.
        data = self.data and (as_text(self.data.case, case_of="sent"), self.data.failed)
        # The reference is known there, and is told from an equal one by its identity.
        under_test = None if self.under_test is REFERENCE else self.under_test
        return {**self.__dict__, "data": data, "under_test": under_test}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["data"] is not None:
            text, failed = state["data"]
            state["data"] = Given(subject_of(from_json(text)), failed)
        state["under_test"] = state["under_test"] or REFERENCE
        statements()  # imported before its time runs
        self.__dict__.update(state)


@runtime_checkable
class Watcher(Protocol):
    """Told how the work goes on."""

    def progressed(self, id: str, done: int) -> None:
        """So many steps of the unit are done."""

    def finished(self, result: Finished) -> None:
        """A unit is done."""

    def said(self, sentence: str) -> None:
        """Something that the user should know."""


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
) -> list[R]:
    """The results of the units, in their order.

    Args:
        units: the work.
        jobs: how many processes; 1 stays in this one, unless there is a ``timeout`` or somebody else's code.
        watcher: told of every case and every result.
        journal: what it holds is not done again; it is told what is finished.
        timeout: seconds after which a unit is ended; what it had finished by then is its result.
        enough: why to stop after a result; empty to go on.
        patience: the same for a step of a unit of somebody else's code.
        workers: processes that are there already, in place of others that end with the run.

    Raises:
        Interrupted: on a signal, with the results so far.
    """
    stopping.keep()
    runs = _Run(units, watcher, journal, enough)
    foreign = any(getattr(unit, "foreign", False) for unit in units)
    # The later statements of the paper follow limits and take longest: they go first. A run that stops at the first
    # result of a kind is after the quick ones.
    order = [k for k in range(len(units)) if k not in runs.done]
    if enough is None:
        order.reverse()
    try:
        if (jobs == 1 or len(order) <= 1) and timeout is None and not foreign:
            _one_after_another(runs, order)
        else:
            with nullcontext(workers) if workers else crew(min(jobs, len(order))) as those:
                told = _Told(runs, timeout, patience)
                those.work(order, runs.left.__getitem__, told, timeout=timeout, patience=patience)
    except KeyboardInterrupt:
        raise Interrupted(runs.results("")) from None
    except _Enough as found:
        return runs.results(str(found))
    return runs.results("")


class _Enough(Exception):
    """The rest of the units need not be run."""


class _Run(Generic[R]):
    """What is done, and what is left to do."""

    def __init__(
        self,
        units: Sequence[Work[R]],
        watcher: Watcher,
        journal: Journal | None,
        enough: Callable[[R], str] | None,
    ) -> None:
        self.watcher = watcher
        self.journal = journal
        self._enough = enough
        self.done: dict[int, R] = {}
        self.left = dict(enumerate(units))
        for k, unit in enumerate(units):
            if journal is not None:
                self.left[k] = journal.continued(unit)
                found = journal.result_of(unit)
                if found is not None:
                    self.done[k] = found
                    watcher.finished(found)
            if k not in self.done and (lost := getattr(unit, "lost", "")):
                self.done[k] = unit.unfinished(lost)
                watcher.finished(self.done[k])

    def progressed(self, k: int, done: int) -> None:
        self.watcher.progressed(self.left[k].id, done)

    def so_far(self, k: int, so_far: Any) -> None:
        self.left[k] = replace(self.left[k], so_far=so_far)  # type: ignore[type-var]
        if self.journal is not None:
            self.journal.so_far(self.left[k])

    def finished(self, k: int, result: R) -> None:
        if self.journal is not None:
            self.journal.finished(self.left[k], result)
        self.given_up(k, result)

    def given_up(self, k: int, result: R) -> None:
        """A result that another run would not have."""
        self.done[k] = result
        self.watcher.finished(result)
        self.enough()

    def enough(self) -> None:
        for result in self.done.values():
            if self._enough and (why := self._enough(result)):
                raise _Enough(why)

    def results(self, why: str) -> list[R]:
        """One per unit, also of those that are not finished; of these the journal keeps what there is."""
        if self.journal is not None:
            for k, unit in self.left.items():
                if k not in self.done:
                    self.journal.so_far(unit, at_once=True)
        return [self.done[k] if k in self.done else unit.unfinished(why) for k, unit in self.left.items()]


def _one_after_another(runs: _Run[R], order: list[int]) -> None:
    single_threaded()
    runs.enough()
    for k in order:

        def progress(done: int, so_far: Any = None, k: int = k) -> None:
            with stopping.undisturbed():
                runs.progressed(k, done)
                if so_far is not None:
                    runs.so_far(k, so_far)

        with stopping.interruptible():
            result = runs.left[k].run(progress)
        runs.finished(k, result)


class _Told(Generic[R]):
    """Hears of the crew what becomes of the units."""

    def __init__(self, runs: _Run[R], timeout: float | None, patience: float) -> None:
        self._runs = runs
        self._timeout = timeout
        self._patience = patience
        self._done: dict[int, int] = {}

    def __call__(self, k: int, word: str, value: Any) -> None:
        runs, unit = self._runs, self._runs.left[k]
        if word == "progressed":
            self._done[k] = value
            runs.progressed(k, value)
        elif word == "so far":
            runs.so_far(k, value)
        elif word == "again":
            runs.watcher.said(f"{unit.id}: the process that worked on it {value}; it goes on in another.")
        elif word == "finished":
            runs.finished(k, value)
        else:
            if word in ("out of time", "out of patience") and runs.journal is not None:
                runs.journal.so_far(unit, at_once=True)
            runs.given_up(k, unit.unfinished(self._why(k, word, value)))

    def _why(self, k: int, word: str, value: Any) -> str:
        """Why there is no more of a unit; of somebody else's code, where it was."""
        unit = self._runs.left[k]
        where = f" {unit.where(self._done.get(k))}" if getattr(unit, "foreign", False) else ""  # type: ignore[attr-defined]
        if word == "out of time":
            return f"out of time after {self._timeout:g} s{where}"
        if word == "out of patience":
            return f"out of time after {self._patience:g} s{where}"
        if word == "died":
            return f"the process that worked on it {value}{where}"
        return f"the process that worked on it failed{where}: {value}"
