"""A hunt whose rounds (batches of cases) are searched in other processes has the same result as one in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import theorems.command.common
import theorems.command.counterexamples
from tests.theorems.run.engines.executors import OnExecutor
from theorems.command.app import main
from theorems.core.exit_code import Exit
from theorems.counterexamples import rounds as rounds_
from theorems.counterexamples import search
from theorems.counterexamples.rounds import Rounds, RoundsResult, rounds_of
from theorems.counterexamples.search import Hunt
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.run.engines.coordinator import Coordinator
from theorems.run.events import ignore
from theorems.run.schedule import run

EASY = ("lemma-11", "strict-optimum")
HARMLESS = ("lemma-11", "")


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the rounds in this process; other processes keep the usual length."""
    for module in (search, rounds_, theorems.command.counterexamples):
        monkeypatch.setattr(module, "ROUND", 4)
    monkeypatch.setattr(rounds_, "MANY", 20)


def hunted(id: str, without: str, **more: Any) -> Hunt:
    hunt = Hunt(weakened_named(id, without), 3, 60.0, **more)
    hunt.run()
    return hunt


def test_rounds_searched_separately_agree_with_those_of_a_hunt() -> None:
    [seen] = run([rounds_of(*HARMLESS, 3, 9)], 1, ignore)
    assert [len(item) for item in seen.rounds] == [4] * 3
    # A hunt of nine cases has rounds of 4, 4 and 1, each drawn from a seed of its own.
    whole = hunted(*HARMLESS, cases=9)
    again = hunted(*HARMLESS, cases=9, rounds=seen.rounds)
    assert again.effort == whole.effort
    assert (again.effort.tried, again.effort.rounds) == (9, 3)
    assert hunted(*HARMLESS, cases=9, rounds=seen.rounds[:1]).effort == whole.effort


def test_the_first_round_with_a_counterexample_ends_the_hunt() -> None:
    [seen] = run([rounds_of(*EASY, 3, 60)], 1, ignore)
    assert seen.has_counterexample
    assert not any(item[-1].counterexample for item in seen.rounds[:-1])
    there = hunted(*EASY, rounds=seen.rounds[:-1], known=seen.rounds[-1])
    here = hunted(*EASY)
    assert there.effort == here.effort
    assert there.found is not None
    assert here.found is not None
    assert repr(there.found.problem) == repr(here.found.problem)


def test_the_result_of_an_unfinished_round_has_no_cases() -> None:
    work = rounds_of(*EASY, 0, None)
    assert work.count == rounds_.MANY
    assert work.parts()[7] == replace(work, count=1, part=7)
    assert work.unfinished_result("gone") == RoundsResult(work.id, ((),), "gone")
    assert not Rounds("a", "b", 0, 1).foreign
    assert Rounds("mine.py:a", "b", 0, 1).foreign


@contextmanager
def on_threads(name: str, run: dict[str, Any], journal: Path | None) -> Iterator[Coordinator]:
    with ThreadPoolExecutor(2) as executor:
        yield Coordinator(OnExecutor(executor), run, journal)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["lemma-11", "--without", "strict-optimum", "--cases", "9", "--record"], Exit.FALSIFIED),
        (["lemma-11", "--cases", "9", "--record"], Exit.UPHELD),
    ],
)
def test_a_hunt_on_an_engine_has_the_same_output_as_a_local_one(
    options: list[str], code: Exit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()  # restore the length of rounds, since worker processes use the usual one
    monkeypatch.setattr(theorems.command.common, "coordinator", on_threads)
    monkeypatch.chdir(tmp_path)
    messages = []
    for engine in ("local", "dask://there"):
        assert main(["hunt", *options, "--engine", engine]) == code
        [written] = (tmp_path / "hunted").iterdir()
        messages.append((capsys.readouterr().out, written.read_text()))
        written.unlink()
    assert messages[0] == messages[1]


class Busy(OnExecutor):
    """An executor that runs the first ``answers`` tasks, and never the later ones."""

    answers = 0

    def submit(self, task: Any) -> Any:
        self.answers -= 1
        return super().submit(task) if self.answers >= 0 else Future()


def test_the_time_limit_of_a_hunt_ends_it_on_every_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def busy(name: str, run: dict[str, Any], journal: Path | None) -> Iterator[Coordinator]:
        with ThreadPoolExecutor(1) as executor:
            yield Coordinator(Busy(executor), run, journal)

    monkeypatch.setattr(theorems.command.common, "coordinator", busy)
    monkeypatch.chdir(tmp_path)
    command = ["hunt", "lemma-11", "--engine", "dask://there", "--seconds", "0.3", "--resume", "run.jsonl"]
    assert main(command) == Exit.INCONCLUSIVE
    assert "theorems: lemma-11: no round of 4 cases was finished in 0.3 s; nothing is" in capsys.readouterr().err


def test_rounds_in_a_journal_are_not_searched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = []
    for name in ("on", "off"):
        monkeypatch.setattr(theorems.command.common, "coordinator", on_threads if name == "on" else never)
        command = ["hunt", "lemma-11", "--engine", "dask://there", "--cases", "4", "--resume", "run.jsonl"]
        assert main(command) == Exit.UPHELD
        messages.append(capsys.readouterr().out)
    assert messages[0] == messages[1]


@contextmanager
def never(name: str, run: dict[str, Any], journal: Path | None) -> Iterator[Coordinator]:
    with ThreadPoolExecutor(1) as executor:
        yield Coordinator(Busy(executor), run, journal)
