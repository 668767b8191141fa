"""Lines that commands print about hunts and tables, and their exit codes, compared with expected ones."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from generators.case import Case
from generators.user_data import case_of
from tests.places import ROOT
from theorems.command.app import main
from theorems.core.exit_code import Exit
from theorems.counterexamples import console_output
from theorems.counterexamples.console_output import hunt_progress
from theorems.counterexamples.rounds import RoundsResult
from theorems.counterexamples.search import ROUND, Effort, Hunt, Observation
from theorems.run.tables import case_lines

FILE = ROOT / "counterexamples" / "theorem-2-without-single-input.json"


pytestmark = pytest.mark.usefixtures("own_directory")


class Heard(Console):
    """A console without a terminal that keeps the printed lines."""

    def __init__(self) -> None:
        super().__init__(file=StringIO(), force_terminal=False, width=500)

    @property
    def lines(self) -> list[str]:
        assert isinstance(self.file, StringIO)
        return self.file.getvalue().splitlines()


def recorded_case() -> Case:
    return case_of(json.loads(FILE.read_text(encoding="utf-8"))["case"])


def test_the_numbers_of_a_counterexample_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Its numbers are printed when a counterexample is found, and when it is replayed."""
    lines = list(case_lines(recorded_case()))
    assert lines
    assert main(["replay", str(FILE)]) == 1
    output = capsys.readouterr().out
    assert all(line in output for line in lines)
    assert main(["hunt", "theorem-2", "--without", "single-input", "--seed", "7", "--out", "here"]) == 1
    output = capsys.readouterr().out
    [path] = Path("here").iterdir()
    result = case_of(json.loads(path.read_text(encoding="utf-8"))["case"])
    assert all(line in output for line in case_lines(result))


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_hunt_prints_how_it_ended(
    interrupted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Hunt.run

    def ended(self: Hunt) -> Any:
        run(self)
        if interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(Hunt, "run", ended)
    code = main(["hunt", "lemma-3", "--cases", "5", "--seconds", "60"])
    assert code == (Exit.INTERRUPTED if interrupted else Exit.UPHELD)
    assert f"5 cases in 1 rounds, seed 0, {'interrupted' if interrupted else '60 s'}; " in capsys.readouterr().out


def test_the_progress_of_a_hunt_is_printed_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the cases per second; it is printed first after some seconds, and then every few seconds."""
    now = [100.0]
    monkeypatch.setattr(console_output.time, "monotonic", lambda: now[0])
    heard = Heard()
    with hunt_progress(heard, "lemma-3", 60.0) as watch:
        for passed, effort in (
            (5.0, Effort(tried=7)),
            (11.0, Effort(tried=20, shrinking=2)),
            (12.0, Effort(tried=30)),
            (31.0, Effort(tried=62, best=0.25)),
        ):
            now[0] = 100.0 + passed
            watch(effort)
    assert heard.lines == [
        "lemma-3: searching: 20 cases, 2 more to shrink it, 2/s, largest violation —",
        "lemma-3: searching: 62 cases, 2/s, largest violation 0.25",
    ]


def test_a_resumed_hunt_reuses_its_completed_rounds() -> None:
    """All rounds of a hunt are reused, except the last one if it has a counterexample or was cut short."""
    looked = Observation(0.5, False, True, False, "", False, 1.0)
    one, other = (looked,), (looked, looked)
    assert RoundsResult("lemma-3").as_known(ROUND - 1) == ((), ())
    rounds = RoundsResult("lemma-3", (one, other))
    result = RoundsResult("lemma-3", (one, (looked, replace(looked, counterexample=True))))
    assert result.has_counterexample
    assert rounds.as_known(None) == ((one, other), ())
    assert rounds.as_known(ROUND) == ((one, other), ())
    assert rounds.as_known(ROUND - 1) == ((one,), other)
    assert result.as_known(None) == ((one,), result.rounds[1])


def test_the_command_without_arguments_parses_those_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["theorems", "show", "lemma-3"])
    assert main() == 0
    assert "lemma-3" in capsys.readouterr().out
