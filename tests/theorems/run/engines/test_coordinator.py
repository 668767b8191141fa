"""Units of work on an executor have the same results as in this process, whatever happens to the workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference_attention.errors import InvalidInput
from tests.theorems.run.engines.executors import OnExecutor
from tests.theorems.run.test_pool import Listening
from tests.theorems.run.units import Adding, Letters, Sum, Text
from theorems.run.engines.coordinator import Coordinator
from theorems.run.engines.union import append, folder_of, union
from theorems.run.identity import address, identity
from theorems.run.journal import Journal
from theorems.run.schedule import run

RUN = identity("add", seed=1)


@contextmanager
def threads(count: int = 2) -> Iterator[OnExecutor]:
    with ThreadPoolExecutor(count) as executor:
        yield OnExecutor(executor)


@pytest.fixture(scope="module")
def engine() -> Iterator[OnExecutor]:
    with threads() as made:
        yield made


def test_results_on_an_engine_equal_those_in_this_process(engine: OnExecutor) -> None:
    units: list[Any] = [*(Adding(str(k), steps=k) for k in range(4)), Letters("cut", "abc", "b")]
    assert run(units, 1, Listening(), engine=Coordinator(engine, RUN)) == run(units, 1, Listening())


def test_a_unit_that_raises_exits_or_hangs_has_the_same_result_on_an_engine(engine: OnExecutor, tmp_path: Path) -> None:
    units = [
        Adding("raises", manner="raises"),
        Adding("exits", manner="exits", foreign=True),
        Adding("hangs", manner="hangs", at=2, foreign=True),
        Adding("right"),
    ]
    there = run(units, 1, Listening(), patience=1.0, engine=Coordinator(engine, RUN))
    here = run(units, 1, Listening(), patience=1.0)
    assert there == here  # including the steps that were finished before
    raises, exits, hangs, right = there
    assert raises.failed.endswith("failed: ZeroDivisionError: by nothing")
    assert exits == Sum("exits", 3, 2, "the process that worked on it ended with code 7 at step 3")
    assert hangs == Sum("hangs", 1, 1, "out of time after 1 s at step 2")
    assert right == Sum("right", 10, 4)


def test_a_unit_whose_process_is_killed_is_restarted(engine: OnExecutor, tmp_path: Path) -> None:
    unit = Adding("killed", 4, "is killed once", 4, str(tmp_path))
    assert run([unit], 1, Listening(), engine=Coordinator(engine, RUN)) == [Sum("killed", 10, 4)]
    assert (tmp_path / "killed").read_text().split().count("1") == 2


class Losing(OnExecutor):
    """An engine that loses the answers to the first ``lost`` tasks."""

    def __init__(self, executor: ThreadPoolExecutor, lost: int, away: str = "") -> None:
        super().__init__(executor)
        self.lost = lost
        self.away = away

    def submit(self, task: Any) -> Any:
        answer: Any = super().submit(task)
        if self.lost:
            self.lost -= 1
            answer.result()
            answer = Future()
            answer.set_exception(RuntimeError("no answer"))
        return answer

    def back(self) -> str:
        return self.away


def test_a_unit_whose_answer_is_lost_is_restarted(tmp_path: Path) -> None:
    listening = Listening()
    with ThreadPoolExecutor(1) as executor:
        [results] = run(
            [Letters("a", "x", folder=str(tmp_path))], 1, listening, engine=Coordinator(Losing(executor, 2), RUN)
        )
    assert results == Text("a", "x")
    message = "a: the process that worked on it was lost (RuntimeError: no answer); it is restarted in another one."
    assert listening.sentences == [message, message]
    assert (tmp_path / "a").read_text().split() == ["x"] * 3


def test_a_unit_lost_three_times_is_given_up() -> None:
    with ThreadPoolExecutor(1) as executor:
        results = run([Adding("a"), Adding("b")], 1, Listening(), engine=Coordinator(Losing(executor, 5), RUN))
    assert sorted(item.failed for item in results) == [
        "",
        "the process that worked on it was lost (RuntimeError: no answer), 3 times",
    ]


def test_results_of_a_lost_worker_are_read_from_its_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", RUN)
    with ThreadPoolExecutor(1) as executor:
        coordinator = Coordinator(Losing(executor, 1), RUN, tmp_path / "j")
        run([Letters("a", "xy", folder=str(tmp_path))], 1, Listening(), journal=journal, engine=coordinator)
    assert sorted((tmp_path / "a").read_text().split()) == ["x", "y"]


def test_a_run_whose_engine_is_away_ends_with_the_reason_for_each_unfinished_unit(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        coordinator = Coordinator(Losing(executor, 1, "the scheduler was away"), RUN, tmp_path / "j")
        results = run([Adding("a"), Adding("b")], 1, Listening(), engine=coordinator)
    assert [item.failed for item in results] == ["the scheduler was away; go on with --resume"] * 2


def test_a_coordinator_that_died_can_be_restarted(tmp_path: Path, engine: OnExecutor) -> None:
    units = [Letters("a", "wxyz", folder=str(tmp_path)), Letters("b", "uv", folder=str(tmp_path))]
    [*whole] = run(units, 1, Listening(), engine=Coordinator(engine, RUN, tmp_path / "j"))
    # The second coordinator reads all results from the workers' journals.
    assert run(units, 1, Listening(), engine=Coordinator(engine, RUN, tmp_path / "j")) == whole
    assert sorted((tmp_path / "a").read_text().split()) == list("wxyz")
    # With another seed, units have other addresses, and are computed again.
    other = {**RUN, "seed": 2}
    assert run(units, 1, Listening(), engine=Coordinator(engine, other, tmp_path / "j")) == whole
    assert sorted((tmp_path / "a").read_text().split()) == sorted("wxyzwxyz")


def test_a_unit_s_address_depends_on_all_that_its_result_depends_on() -> None:
    unit = Adding("a")
    result = address(unit, RUN)
    assert address(replace(unit, so_far=Sum("a")), RUN) == result
    assert address(unit, {**RUN, "examples": 9, "statements": ["a", "b"]}) == result
    others = [replace(unit, steps=5), replace(unit, id="b"), Letters("a", "x")]
    runs = [RUN | {name: "another"} for name in ("source", "version", "libraries", "seed", "command", "kernel")]
    addresses = {result, *(address(item, RUN) for item in others), *(address(unit, item) for item in runs)}
    assert len(addresses) == 1 + len(others) + len(runs)
    cut = Letters("a", "xx").parts()
    assert address(cut[0], RUN) != address(cut[1], RUN)


@pytest.mark.parametrize("name", ["source", "version", "libraries", "files"])
def test_a_worker_with_other_sources_is_refused(name: str, engine: OnExecutor) -> None:
    other = {"libraries": RUN["libraries"] | {"numpy": "0.1"}, "files": {"no/such.py": "00"}}.get(name, "another")
    with pytest.raises(InvalidInput, match=r"^--engine: the worker .* has (another|a different) .*\.$") as refused:
        run([Adding("a")], 1, Listening(), engine=Coordinator(engine, {**RUN, name: other}))
    assert {"files": "no/such.py", "libraries": "numpy"}.get(name, name) in str(refused.value)


def test_journals_of_workers_are_merged(tmp_path: Path) -> None:
    folder = tmp_path / "j.workers"
    assert folder == folder_of(tmp_path / "j")
    append(str(folder), "a", 1)
    assert union(folder) == {}  # without the folder nothing is written
    folder.mkdir()
    append(str(folder), "a", 1)
    append(str(folder), "b", 2)
    [path] = folder.glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"digest": "c", "res')
    append(str(folder), "d", 4)  # after a line that was cut off
    (folder / "zz.jsonl").write_bytes(path.read_bytes() + b'[]\n{"address": "e", "result": 5}\n')
    assert union(folder) == {"a": 1, "b": 2, "d": 4}


def test_a_corrupted_digit_in_a_worker_s_journal_is_detected(tmp_path: Path, engine: OnExecutor) -> None:
    unit, journal = Adding("a"), tmp_path / "j"
    [result] = run([unit], 1, Listening(), engine=Coordinator(engine, RUN, journal))
    [path] = folder_of(journal).glob("*.jsonl")
    path.write_text(path.read_text().replace('"value": 10', '"value": 70'))
    assert union(folder_of(journal)) == {}
    assert run([unit], 1, Listening(), engine=Coordinator(engine, RUN, journal)) == [result]
    # If a line has a right digest but no valid result, the unit is computed again, too.
    path.write_text("")
    append(str(folder_of(journal)), address(unit, RUN), {"value": "70"})
    assert run([unit], 1, Listening(), engine=Coordinator(engine, RUN, journal)) == [result]


def test_a_run_ends_with_its_results_so_far_when_its_condition_until_holds(engine: OnExecutor) -> None:
    coordinator = Coordinator(engine, RUN)
    over = threading.Event()

    class Seeing(Listening):
        def finished(self, result: Any) -> None:
            super().finished(result)
            over.set()

    coordinator.until = over.is_set
    results = run([Letters("slow", "abcdefgh", seconds=0.5), Adding("quick")], 1, Seeing(), engine=coordinator)
    assert results[1].failed == ""
    assert results[0].failed == "out of time"
