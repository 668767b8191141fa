"""Mutants face the tests that reach them, each in a forked process, until one fails."""

from __future__ import annotations

import importlib
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.mutants import swapping
from tests.mutants.forks import Died, Tell, limit, told_by
from tests.mutants.making import OUTSIDE, Mutant, Outcome
from tests.mutants.measuring import Bench, Reach, Session, as_record, from_record, measured

LEAST, TIMES = 2.0, 5.0
"""Processor time after which a test counts as one that does not end: so many seconds, or times what it takes."""
START = 30.0
"""Processor time to import and collect."""
LIBRARIES = (
    *("numpy", "scipy.optimize", "scipy.integrate", "scipy.special", "scipy.linalg", "hypothesis.extra.numpy"),
    *("jaxtyping", "flint", "array_api_compat", "cattrs", "sklearn.datasets", "rich.console", "typer", "mpmath"),
    *("cvxpy", "torch"),
)
"""Imported once, before what is mutated is imported anew for each mutant."""
OURS = ("reference_attention", "generators", "theorems", "max_margin_theorems")

Timed = tuple[pytest.Item, float]


def faced(bench: Bench, mutants: Sequence[Mutant]) -> Iterator[Reach | tuple[Mutant, Outcome]]:
    """Measure the tests that are not known, then face every mutant with them; each is told when it is found.

    Raises:
        Died: the tests cannot be collected.
    """
    by_id = {one.id: one for one in mutants}
    inside = [one for one in mutants if one.function != OUTSIDE]
    outside = [one for one in mutants if one.function == OUTSIDE]
    for told in told_by(lambda tell: _all_faced(bench, inside, tell)):
        if "collected" in told:
            bench.known = {name: bench.known[name] for name in told["collected"]}
        elif "outside" in told:
            outside.append(by_id[told["outside"]])
        elif "test" in told:
            found = from_record(told)
            bench.known[found.test] = found
            yield found
        else:
            outcome = Outcome(**told["outcome"])
            bench.remember(outcome)
            yield by_id[told["mutant"]], outcome
    for name in LIBRARIES if outside and Path(bench.part).parts[0] in OURS else ():
        with suppress(ImportError):
            importlib.import_module(name)
    for one in outside:
        outcome = _imported_anew(bench, one)
        bench.remember(outcome)
        yield one, outcome


def _all_faced(bench: Bench, mutants: Sequence[Mutant], tell: Tell) -> None:
    """All mutants in functions, with tests that are collected once."""

    def loop(session: Session, items: list[pytest.Item]) -> None:
        source = bench.source_digest()
        for item in items:
            found = measured(bench, session, item, source)
            if bench.known.get(found.test) != found:
                bench.known[found.test] = found
                tell(as_record(found))
        by_name = {item.nodeid: item for item in items}
        tell({"collected": list(by_name)})
        live = swapping.live_functions(bench.root)
        for mutant in mutants:
            path = bench.root / mutant.file
            if not swapping.is_there(live, path, mutant.function):
                tell({"outside": mutant.id})
                continue
            mutated = mutant.applied(path.read_text(encoding="utf-8"))
            able = bench.reaching(mutant, by_name)
            tests = bench.affordable(able)

            def face(tell: Tell, mutant: Mutant = mutant, path: Path = path, mutated: str = mutated) -> None:
                swapping.exchange(live, path, mutated, mutant.function)
                _run(session, [(by_name[one.test], _longest(one)) for one in tests], tell)  # noqa: B023

            outcome = _outcome(mutant, tests, len(able), face)
            bench.remember(outcome)
            tell({"mutant": mutant.id, "outcome": asdict(outcome)})

    Session(loop).run(bench.root, bench.tests)


def _imported_anew(bench: Bench, mutant: Mutant) -> Outcome:
    """A mutant outside functions: its module, and all that imports it, is imported in the forked process."""
    able = bench.reaching(mutant, bench.known)
    tests = bench.affordable(able)
    allowed = {one.test: _longest(one) for one in tests}
    mutated = mutant.applied((bench.root / mutant.file).read_text(encoding="utf-8"))

    def face(tell: Tell) -> None:
        limit(START)
        swapping.forget((*OURS, Path(bench.part).parts[0].removesuffix(".py")))
        sys.meta_path.insert(0, swapping.Mutated(bench.root, mutant.file, mutated))

        def loop(session: Session, items: list[pytest.Item]) -> None:
            by_name = {item.nodeid: item for item in items}
            _run(session, [(by_name[name], seconds) for name, seconds in allowed.items()], tell)

        Session(loop).run(bench.root, sorted({name.split("::")[0] for name in allowed}))

    return _outcome(mutant, tests, len(able), face)


def _run(session: Session, tests: Sequence[Timed], tell: Tell) -> None:
    for number, (item, seconds) in enumerate(tests):
        tell(number)
        limit(seconds)
        if not session.passes(item):
            raise AssertionError


def _outcome(mutant: Mutant, tests: Sequence[Reach], able: int, face: Callable[[Tell], None]) -> Outcome:
    """What comes of a mutant that faces these tests, of so many that reach it."""
    count = f"{able}" if len(tests) == able else f"{len(tests)} of {able}"
    began, at, outcome, by = _seconds(), -1, "survived", f"{count} tests"
    try:
        for number in told_by(face, seconds=3 * (START + sum(map(_longest, tests)))) if tests else ():
            at = number
    except Died as death:
        outcome, by = "timeout" if death.by_time else "killed", tests[at].test if at >= 0 else "its import"
    took = round(_seconds() - began, 2)
    return Outcome(mutant.file, mutant.function, mutant.line, mutant.change, outcome, by, took)


def _longest(test: Reach) -> float:
    return max(LEAST, TIMES * test.seconds)


def _seconds() -> float:
    held = resource.getrusage(resource.RUSAGE_CHILDREN)
    return held.ru_utime + held.ru_stime
