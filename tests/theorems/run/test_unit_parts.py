"""Units of work that are cut into parts: the result joins those of the parts in order, whichever processes compute them
and however often these are interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from generators.case import Case
from tests.theorems.fake_statements import FAKES, fake_statement, install, weights_sum_to_one
from tests.theorems.run.test_pool import Listening
from tests.theorems.run.units import Letters, Text
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.implementation import Implementation
from theorems.core.statement import Statement
from theorems.run import statement_unit as units_of_verify
from theorems.run import verify as runner
from theorems.run.encoding import plain
from theorems.run.journal import Journal
from theorems.run.result import Result, merge_results
from theorems.run.schedule import run
from theorems.run.statement_unit import Unit
from theorems.run.unit_parts import Parts
from theorems.run.verify import draw_cases, part_sizes, seed_of, verify_generated


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_of_parts_are_joined_in_order(jobs: int) -> None:
    steps = Listening()
    results = run([Letters("one", "abcde"), Letters("two", "x"), Letters("three", "fg")], jobs, steps)
    assert results == [Text("one", "<abcde>"), Text("two", "x"), Text("three", "<fg>")]
    assert sorted(result.id for result in steps.results) == [
        "one",
        "three",
        "two",
    ]  # one result per unit
    assert [done for id, done in steps.steps if id == "one"] == [1, 2, 3, 4, 5]


@dataclass(frozen=True)
class Urgent(Letters):
    urgency: int = 0


def test_units_run_in_order_of_urgency() -> None:
    units = [Urgent(id, "x", urgency=n) for id, n in (("a", 0), ("b", 1), ("c", 1), ("d", 2), ("e", 0))]
    parts = Parts(units, lambda event: None, None, None)
    assert parts.order(backwards=False) == [3, 1, 2, 0, 4]
    assert parts.order(backwards=True) == [3, 1, 2, 4, 0]


class Orders:
    """A stand-in for a pool, which gives each unit a verdict and records which units it is given together."""

    def __init__(self, verdicts: dict[str, Verdict]) -> None:
        self.verdicts = verdicts
        self.orders: list[list[str]] = []

    def work(
        self, order: Sequence[int], part: Callable[[int], Any], on_message: Callable[..., None], **options: Any
    ) -> Iterator[None]:
        units = [part(k) for k in order]
        self.orders.append([unit.id for unit in units])
        for k, unit in zip(order, units, strict=True):
            on_message(k, "finished", plain(Result(unit.id, "x", {self.verdicts[unit.id]: 1})))
            yield


def test_other_units_wait_for_an_upheld_urgent_unit_if_a_run_may_stop_early() -> None:
    units = [Unit(id, 3, 0, urgency=n) for id, n in (("other", 0), ("a", 3), ("b", 2), ("c", 1), ("another", 0))]
    verdicts = dict.fromkeys(("other", "another", "b", "c"), Verdict.UPHELD) | {"a": Verdict.INCONCLUSIVE}
    pool: Any = Orders(verdicts)
    run(units, 2, Listening(), pool=pool, enough=lambda result: "")
    assert pool.orders == [["a"], ["b"], ["c", "other", "another"]]
    pool = Orders(verdicts)
    run(units, 2, Listening(), pool=pool)
    assert pool.orders == [["a", "b", "c", "another", "other"]]


@pytest.mark.parametrize("jobs", [1, 2])
def test_parts_after_the_one_that_ends_its_unit_do_not_count(jobs: int, tmp_path: Path) -> None:
    units = [Letters("one", "abcde", "c", str(tmp_path), 0.02)]
    assert run(units, jobs, Listening()) == [Text("one", "<abc>")]
    if jobs == 1:
        assert (tmp_path / "one").read_text().split() == list("abc")


def test_the_journal_has_a_line_for_every_part(tmp_path: Path) -> None:
    units = [Letters("one", "abcde", folder=str(tmp_path))]
    journal = Journal(tmp_path / "j", {})
    [cut] = run(units, 1, Listening(), journal=journal, enough=lambda one: "enough" if one.text == "c" else "")
    assert cut == Text("one", "<abc>", "enough")
    journal.close()
    listening = Listening()
    assert run(units, 1, listening, journal=Journal(tmp_path / "j", {})) == [Text("one", "<abcde>")]
    assert (tmp_path / "one").read_text().split() == list("abcde")
    assert listening.results == [Text("one", "<abcde>")]


def test_a_unit_whose_data_are_missing_is_not_run() -> None:
    assert run([Letters("one", "abc", lost="no file")], 1, Listening()) == [Text("one", "", "no file")]


PART = 8


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)
    for module in (runner, units_of_verify):
        monkeypatch.setattr(module, "PART", PART)


def same(result: Result) -> Result:
    return replace(result, seconds=0.0)


@pytest.mark.usefixtures("fakes")
def test_each_part_of_a_statement_has_a_seed_of_its_own() -> None:
    assert part_sizes(20) == [8, 8, 4]
    assert len({seed_of("true", 0, part) for part in range(9)} | {seed_of("true", 1)}) == 10
    assert seed_of("true", 5, 0) == seed_of("true", 5)
    cases = draw_cases(FAKES["true"], 20, 0)
    assert len(cases) == 20
    # The first part has the same cases as a run of 8 examples, and later parts have other cases.
    first = draw_cases(FAKES["true"], 8, 0)
    assert list(map(label, cases[:8])) == list(map(label, first))
    large = [item for item in map(label, first) if item[0] > 1000]
    assert large
    assert not set(large) & set(map(label, cases[8:]))


def label(case: Case) -> tuple[int, ...]:
    """Return the seed of a case and the shape of its keys, which do not depend on the units of the keys."""
    return case.seed, *case.problem.keys.shape


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("id", ["true", "undecided", "single"])
def test_the_result_of_a_statement_equals_the_merged_results_of_its_parts(id: str) -> None:
    [whole] = run([Unit(id, 20, 3)], 1, Listening())
    parts = [verify_generated(id, size, 3, part=k) for k, size in enumerate((8, 8, 4))]
    assert same(whole) == same(merge_results(parts))
    assert whole.examples == 20


def rare(at: int) -> Statement:
    """Return a statement that is false only for drawn case number ``at`` and cases of its seed and shape."""
    expected = label(draw_cases(fake_statement("rare", weights_sum_to_one), 20, 0)[at])

    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        yield Claim("seldom", Form.EXACT, -1.0 if label(case) == expected else 1.0, 0.0, "exact")

    return fake_statement("rare", conclusion)


@pytest.mark.parametrize(("at", "examples"), [(3, 4), (12, 13), (18, 19)])
def test_the_first_falsified_case_ends_the_statement(
    at: int, examples: int, monkeypatch: pytest.MonkeyPatch, fakes: None
) -> None:
    install(monkeypatch.setattr, {"rare": rare(at)})
    [results] = run([Unit("rare", 20, 0)], 1, Listening())
    assert results.examples == examples
    assert results.failure is not None


@pytest.mark.usefixtures("fakes")
def test_a_statement_in_parts_can_be_resumed(tmp_path: Path) -> None:
    unit = Unit("undecided", 20, 1)
    [whole] = run([unit], 1, Listening())
    journal = Journal(tmp_path / "j", {})
    run([unit], 1, Listening(), journal=journal, enough=lambda result: "enough")
    journal.close()
    lines = (tmp_path / "j").read_text().splitlines()
    assert len(lines) == 2
    [again] = run([unit], 1, Listening(), journal=Journal(tmp_path / "j", {}))
    assert same(again) == same(whole)
