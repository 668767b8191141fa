"""Processes of a pool: dead ones are replaced, hanging ones are ended, finished results are kept, and no result depends
on this.
"""

from __future__ import annotations

import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.theorems.run.units import Adding, Sum
from theorems.run.events import CaseDone, Event, Notice, UnitDone
from theorems.run.journal import Journal
from theorems.run.pool import Pool
from theorems.run.schedule import Interrupted, run, run_stepwise


class Listening:
    """A handler of events that records what it receives."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.sentences: list[str] = []
        self.steps: list[tuple[str, int]] = []

    def __call__(self, event: Event) -> None:
        match event:
            case CaseDone(id, done):
                self.progressed(id, done)
            case UnitDone(result):
                self.finished(result)
            case Notice(sentence):
                self.sentences.append(sentence)

    def progressed(self, id: str, done: int) -> None:
        self.steps.append((id, done))

    def finished(self, result: Any) -> None:
        self.results.append(result)


def alive() -> set[int]:
    """Return the ids of running processes that this process has started."""
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return {int(pid) for pid in children.read_text().split()} if children.exists() else set()


def test_results_are_in_order_and_no_process_is_left() -> None:
    before = alive()
    units = [Adding(str(k), steps=k) for k in range(5)]
    assert [item.value for item in run(units, 2, Listening())] == [0, 1, 3, 6, 10]
    assert alive() <= before  # not ==, since child processes of another test may have ended


def test_units_that_belong_together_run_in_one_process() -> None:
    results = run([Adding(str(k), together="" if k % 2 else "even") for k in range(8)], 2, Listening())
    assert [item.value for item in results] == [10] * 8
    assert len({item.process for item in results[::2]}) == 1
    assert len({item.process for item in results}) == 2


@pytest.mark.parametrize(
    ("manner", "why"),
    [
        ("raises", "failed: ZeroDivisionError: by nothing"),
        ("exits", "worked on it ended with code 7, 3 times"),
        ("is killed", "worked on it was killed by SIGKILL, perhaps for lack of memory, 3 times"),
    ],
)
def test_a_unit_that_cannot_be_finished_gives_a_reason_and_affects_no_other(manner: str, why: str) -> None:
    listening = Listening()
    wrong, right = run([Adding("wrong", manner=manner), Adding("right")], 2, listening)
    assert wrong.failed.endswith(why)
    assert right == Sum("right", 10, 4)
    assert len(listening.sentences) == (0 if manner == "raises" else 2)


def test_a_unit_whose_process_is_killed_is_restarted(tmp_path: Path) -> None:
    listening = Listening()
    units = [Adding("killed", 6, "is killed once", 5, str(tmp_path)), Adding("other")]
    killed, _ = run(units, 2, listening)
    assert killed == Sum("killed", 21, 6)
    assert listening.sentences == [
        "killed: the process that worked on it was killed by SIGKILL, perhaps for lack of memory;"
        " it is restarted in another one."
    ]
    steps = (tmp_path / "killed").read_text().split()
    assert steps.count("1") == 2
    assert steps.count("5") == 2


def test_an_incomplete_message_is_not_reported_as_the_cause_of_death(tmp_path: Path) -> None:
    listening = Listening()
    unit = Adding("killed", 3, "is killed within a message", 3, str(tmp_path), foreign=True)
    assert run([unit], 1, listening, patience=30.0) == [Sum("killed", 6, 3)]
    [sentence] = listening.sentences
    assert "was killed by SIGKILL" in sentence


def test_a_unit_out_of_time_keeps_its_partial_result(tmp_path: Path) -> None:
    late, quick = run([Adding("late", 9, "hangs", 6, str(tmp_path)), Adding("quick")], 1, Listening(), timeout=3.0)
    assert quick == Sum("quick", 10, 4)
    assert late.failed == "out of time after 3 s"
    assert late.steps >= 2


def reopened(journal: Journal) -> Journal:
    journal.close()
    return Journal(journal.path, {})


def test_a_run_ends_early_at_a_result_that_is_enough() -> None:
    units = [Adding("one"), Adding("two", 3), Adding("three")]
    results = run(units, 1, Listening(), enough=lambda one: "not finished" if one.value == 6 else "")
    assert [one.failed for one in results] == ["", "", "not finished"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_units_in_the_journal_do_not_run_again(tmp_path: Path, jobs: int) -> None:
    units = [Adding("one", folder=str(tmp_path)), Adding("two", folder=str(tmp_path))]
    journal = Journal(tmp_path / "j", {})
    first = run(units, jobs, Listening(), journal=journal)
    listening = Listening()
    assert run(units, jobs, listening, journal=reopened(journal)) == first
    assert listening.results == first
    assert [(tmp_path / item).read_text().split() for item in ("one", "two")] == [list("1234")] * 2


def test_results_finished_before_a_signal_are_kept(tmp_path: Path) -> None:
    class Stopping(Listening):
        def progressed(self, id: str, done: int) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    journal = Journal(tmp_path / "j", {})
    with pytest.raises(Interrupted) as stopped:
        run([Adding("one"), Adding("two", 2)], 1, Stopping(), journal=journal)
    assert [result.failed for result in stopped.value.results] == ["interrupted", ""]
    assert stopped.value.results[0].steps == 2
    listening = Listening()
    assert run([Adding("one"), Adding("two", 2)], 1, listening, journal=reopened(journal))[0] == Sum("one", 10, 4)
    assert [result.id for result in listening.results] == ["two", "one"]


def test_a_stepwise_run_sends_its_events_to_the_handler() -> None:
    told = Listening()
    steps = run_stepwise(
        [Adding("one", 3)], 1, told, journal=None, timeout=9.0, enough=None, patience=9.0, pool=None, engine=None
    )
    for _ in steps:
        pass
    assert told.results == [Sum("one", 6, 3)]


def test_a_unit_is_ended_when_the_caller_stops_iterating() -> None:
    before = alive()
    with closing(Pool(1)) as pool:
        steps = pool.work([0], lambda k: Adding("hangs", manner="hangs"), lambda k, word, value: None)
        for _ in zip(range(5), steps, strict=False):
            pass
        assert len(alive() - before) == 1
        steps.close()
        assert alive() <= before
        # the pool can still do other units
        results = []
        for _ in pool.work([7], lambda k: Adding("right"), lambda k, word, value: results.append((k, word))):
            pass
        assert (7, "finished") in results


def test_after_an_error_in_a_handler_idle_processes_remain_and_busy_ones_are_ended() -> None:
    class Enough(Exception):
        pass

    def stop(number: int, word: str, value: Any) -> None:
        if (number, word) == (0, "finished"):
            raise Enough

    with closing(Pool(2)) as pool:
        units = [Adding("right"), Adding("hangs", manner="hangs")]
        with pytest.raises(Enough):
            for _ in pool.work([0, 1], units.__getitem__, stop):
                pass
        (idle,) = pool._workers
        results = []
        for _ in pool.work([7], lambda k: Adding("right"), lambda k, word, value: results.append((k, word))):
            pass
        assert (7, "finished") in results
        assert pool._workers == [idle]
