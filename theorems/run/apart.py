"""Somebody else's code away from this process: what has to be known of it here is asked of another process.

Whatever it does there (a segmentation fault, an endless loop, ``os._exit``), this process goes on, and says so. An
object that the caller of a Python function hands over stays in his process: a child that is forked has neither CUDA nor
autograd's threads, one that is spawned would import something else under its name, and a debugger sees into neither.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from threadpoolctl import threadpool_limits

from max_margin_theorems import stopping
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from theorems.core.implementation import Implementation
from theorems.core.statement import Statement
from theorems.core.tolerances import Tolerance
from theorems.registry.lookup import statement_named
from theorems.registry.suite import statements, tolerances_of
from theorems.registry.user_file import read_by
from theorems.run.crew import PATIENCE, Crew, crew
from theorems.run.findings import Found, findings
from theorems.run.processes import Interrupted, run
from theorems.run.result import Result
from theorems.run.unit import Unit
from theorems.run.user_data import Given, as_text, subject_of
from theorems.run.verify import Progress, nothing

SETTLING = 10.0
"""Seconds for what is asked to end with what is finished, once a signal came."""
NOTHING = "; nothing is concluded."


class Died(InvalidInput):
    """Somebody else's code ended the process that it ran in, or had to be ended, before anything could be concluded.

    The command prints the sentence and exits with code 3.
    """


@dataclass(frozen=True)
class Answer:
    """What a function returned, or the sentence of the InvalidInput that it raised."""

    answer: Any = None
    refused: str = ""


@dataclass(frozen=True)
class Errand:
    """A call in another process.

    Attributes:
        function: MODULE:NAME, of ours; its first argument is to be called with the number of steps done.
        given: the other arguments.
    """

    function: str
    given: tuple[Any, ...]
    foreign: bool = True

    def run(self, progress: Progress) -> Answer:
        """What came of it."""
        try:
            module, _, name = self.function.partition(":")
            return Answer(getattr(importlib.import_module(module), name)(progress, *self.given))
        except InvalidInput as error:
            return Answer(refused=str(error))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # What is ours is imported before the time of what is not runs.
        statements()
        with suppress(InvalidInput):  # a library that is missing: said when it runs
            importlib.import_module(self.function.partition(":")[0])


class Apart:
    """Processes for somebody else's code, and what was asked of them.

    Attributes:
        workers: the processes; they are started when there is something to ask.
        patience: seconds without a word after which an errand is given up.
    """

    def __init__(self, workers: Crew, patience: float) -> None:
        self.workers = workers
        self.patience = patience
        self._lost: dict[str, str] = {}
        self._read: dict[str, Statement] = {}

    def ask(self, function: str, *given: Any, where: Callable[[int], str], settles: bool = False) -> Any:
        """The result of ``MODULE:NAME(progress, *given)`` in another process.

        Args:
            where: says of how many steps are done what a sentence calls the next one.
            settles: whether the function listens to signals, and is to be heard out after one.

        Raises:
            InvalidInput: the function raised it.
            Died: there is no result; it says where it ended.
        """
        errand, done = Errand(function, given), 0
        word: str = ""
        value: Any = None

        def told(_: int, said: str, of: Any) -> None:
            nonlocal word, value, done
            if said == "progressed":
                done = of
            else:
                word, value = said, of

        if settles:
            stopping.keep()
        try:
            self.workers.work([0], lambda _: errand, told, patience=self.patience)
        except KeyboardInterrupt:
            if not settles:
                raise
            self.workers.settle(told, SETTLING)
            if not word:
                raise
        if word == "finished":
            if value.refused:
                raise InvalidInput(value.refused)
            return value.answer
        if word == "out of patience":
            raise Died(f"{where(done)}: out of time after {self.patience:g} s{NOTHING}")
        how = f"failed: {value}" if word == "failed" else value
        raise Died(f"{where(done)}: the process that worked on it {how}{NOTHING}")

    def statement(self, id: str) -> Statement:
        """A statement in a file, without what can be called; where reading it ends the process, with its id alone.

        Raises:
            InvalidInput: the file cannot be used.
        """
        if id not in self._read:
            file = id.rpartition(":")[0]
            try:
                found = _nameless(id) if file in self._lost else self._described(id, file)
            except Died as error:
                self._lost[file] = str(error).removesuffix(NOTHING)
                found = _nameless(id)
            # A file may call its statement by another name than its id.
            self._read |= {id: found, found.id: found}
        return self._read[id]

    def _described(self, id: str, file: str) -> Statement:
        found: Statement = self.ask(f"{__name__}:described", id, where=lambda _: f"loading {file}")
        return found

    def why_lost(self, one: Statement) -> str:
        """Why a statement could not be read; empty if it could."""
        return self._lost.get(one.id.rpartition(":")[0], "") if one.file else ""


def units_of(
    chosen: Sequence[Statement],
    examples: int,
    seed: int,
    given: Given | None,
    under_test: Implementation,
    here: Apart | None,
) -> list[Unit]:
    """A unit per statement; without ``here`` all of them in this process."""
    lost = {one.id: here.why_lost(one) if here else "" for one in chosen}
    isolated = here is not None
    return [Unit(one.id, examples, seed, given, under_test, lost=lost[one.id], isolated=isolated) for one in chosen]


def results_here(
    units: Sequence[Unit], here: Apart | None, enough: Callable[[Result], str] | None = None
) -> list[Result]:
    """Their results without a word on the way: elsewhere if there is somebody else's code, otherwise in this process.

    Args:
        enough: why to stop after a result; empty to go on.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    if here is None or not any(unit.foreign for unit in units):
        results: list[Result] = []
        # As the command has it: more threads add up in another order, and get in each other's way.
        with threadpool_limits(1, "blas"):
            for unit in units:
                results.append(unit.run(nothing))
                if enough and enough(results[-1]):
                    break
        return results
    try:
        return run(units, 1, Silence(), enough=enough, patience=here.patience, workers=here.workers)
    except Interrupted:
        raise KeyboardInterrupt from None


class Silence:
    """A watcher that says nothing."""

    def progressed(self, id: str, done: int) -> None:
        """Nothing."""

    def finished(self, result: object) -> None:
        """Nothing."""

    def said(self, sentence: str) -> None:
        """Nothing."""


def findings_of(given: Given, chosen: Sequence[Statement], here: Apart | None) -> list[Found]:
    """As :func:`theorems.run.findings.findings`; predicates that stand in somebody's file are asked for elsewhere."""
    own = [one for one in chosen if one.file and one.own_assumptions]
    if here is None or not own:
        return findings(given, chosen)
    found = findings(given, [replace(one, own_assumptions={}) for one in chosen])
    for one in own:
        text = as_text(given.case, case_of="sent")
        try:
            found += [
                Found(*held)
                for held in here.ask(f"{__name__}:own_findings", one.id, text, where=lambda _: "its predicates")
            ]
        except Died as error:
            said = str(error).removesuffix(NOTHING)
            found += [Found(each.id, each.title, None, said) for each in one.own_assumptions.values()]
    return found


def tolerances_here(chosen: Sequence[Statement], here: Apart | None) -> dict[str, Tolerance]:
    """The tolerances that files of statements declare, by key; none of a file that cannot be read."""
    found: dict[str, Tolerance] = {}
    for one in chosen:
        if one.file and here is None:
            found |= tolerances_of(one)
        elif one.file and here is not None and not here.why_lost(one):
            with suppress(Died):
                found |= here.ask(f"{__name__}:own_tolerances", one.id, where=lambda _: "its tolerances")
    return found


def own_tolerances(progress: Progress, id: str) -> dict[str, Tolerance]:
    """Of the module of a statement."""
    return tolerances_of(statement_named(id))


@contextmanager
def apart(jobs: int, patience: float = PATIENCE) -> Iterator[Apart]:
    """Up to ``jobs`` processes for somebody else's code; within it no file of statements is run in this one."""
    with crew(jobs) as workers:
        made = Apart(workers, patience)
        with read_by(made.statement):
            yield made


def described(progress: Progress, id: str) -> Statement:
    """The statement of that id, to be sent: what can be called stays here."""
    found = statement_named(id)
    own = {name: replace(one, check=_not_here) for name, one in found.own_assumptions.items()}
    plain: dict[str, Any] = {name: dict(getattr(found, name)) for name in ("survives", "needs")}
    plain["claims"] = {name: str(when) for name, when in found.claims.items()}
    functions: dict[str, Any] = dict.fromkeys(("cases", "conclusion", "from_data"), _not_here)
    return replace(found, own_assumptions=own, **plain, **functions)


def own_findings(progress: Progress, id: str, text: str) -> list[tuple[Any, ...]]:
    """Of the assumptions that stand in the file of a statement, on a case."""
    statement = replace(statement_named(id), assumptions=())
    found = findings(Given(subject_of(from_json(text))), [statement])
    return [(one.id, one.title, one.holds, one.evidence, dict(one.exact)) for one in found]


def _nameless(id: str) -> Statement:
    return Statement(
        id, "could not be loaded", "own", (), _not_here, _not_here, "", _not_here, file=id.rpartition(":")[0]
    )


def _not_here(*given: Any) -> NoReturn:
    raise RuntimeError("somebody else's code is called in another process, not in this one")
