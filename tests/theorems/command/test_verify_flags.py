"""``verify`` with ``--timeout``, ``--fail-fast`` and ``--resume``; and ``--resume`` of the other commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.theorems.command.test_app import in_a_process
from theorems.command.app import main

pytestmark = pytest.mark.usefixtures("own_directory")


fakes = pytest.mark.usefixtures("fake_statements")


def results(path: str = "r.json") -> list[dict[str, object]]:
    report = json.loads(Path(path).read_text(encoding="utf-8"))["statements"]
    for item in report:
        item["seconds"] = 0
    return report


def test_a_statement_that_exceeds_its_time_is_inconclusive_with_its_results_so_far() -> None:
    options = ["--examples", "60", "--timeout", "3", "--resume", "r.jsonl", "--json", "r.json"]
    process = in_a_process("verify", "slow", "true", *options, fake=True)
    assert process.returncode == 3, process.stderr
    slow, true = results()
    assert (slow["verdict"], true["verdict"]) == ("inconclusive", "upheld")
    assert 0 < slow["examples"] < 60  # type: ignore[operator]
    message = f"out of time after 3 s, with {slow['examples']} examples finished"
    assert slow["reason"] == message
    assert f"slow: inconclusive: {message}" in process.stdout
    kept = [json.loads(line) for line in Path("r.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [item["unit"] for item in kept if "result" in item] == ["Unit true"]


@fakes
def test_with_fail_fast_the_first_falsified_statement_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    ids, options = ["true", "false", "undecided"], ["--examples", "9", "--jobs", "1", "--json", "r.json"]
    assert main(["verify", *ids, *options, "--fail-fast"]) == 1
    assert [result["examples"] for result in results()][::2] == [9, 0]
    assert results()[2]["reason"] == "stopped because false is falsified, with 0 examples finished"
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) <= 20
    assert printed[0].startswith("false (")
    assert printed[-1] == "falsified: false; with --fail-fast, the other statements are stopped or not printed"
    assert main(["verify", *ids, *options]) == 1
    assert results()[2]["examples"] == 9


@fakes
@pytest.mark.parametrize("option", ["--json", "--resume"])
def test_unwritable_files_are_refused_before_the_run(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("theorems.run.statement_unit.verify_generated", lambda *arguments: pytest.fail("it has begun"))
    assert main(["verify", "true", option, "no/where"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(Path().iterdir()) == []


@fakes
def test_a_journal_of_another_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["verify", "true", "--jobs", "1", "--resume", "r.jsonl"]
    assert main([*given, "--examples", "5"]) == 0
    for more, differs in (
        (["--examples", "6"], "examples: 5 there, 6 here"),
        (["--examples", "5", "--seed", "1"], "seed: 0 there, 1 here"),
        (["--examples", "5", "true-too"], 'statements: ["true"] there, ["true", "true-too"] here'),
        (["--examples", "5", "--data", "figure-1a"], "data: nothing there"),
    ):
        capsys.readouterr()
        assert main([*given, *more]) == 2
        assert differs in capsys.readouterr().err


def twice(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], list[str]]:
    """Return the lines that a command prints in full, and when it resumes from its journal cut off after two lines."""
    messages = []
    for _ in range(2):
        code = main([*arguments, "--resume", "r.jsonl"])
        assert code in (0, 1), capsys.readouterr().err
        messages.append(re.sub(r"\d+\.\d s|hunted/\S+", "", capsys.readouterr().out).splitlines())
        lines = Path("r.jsonl").read_bytes().splitlines(keepends=True)
        assert len(lines) > 1
        Path("r.jsonl").write_bytes(b"".join(lines[:2]) + b'{"cut o')
    return messages[0], messages[1]


def test_an_interrupted_hunt_resumes_from_its_journal(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = twice(capsys, "hunt", "lemma-11", "--cases", "15")
    assert any("15 cases" in line for line in first)
    assert first == second


def test_an_interrupted_bench_run_resumes_from_its_journal(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = twice(
        capsys, "bench", "--data", "figure-1a", "--rule", "gd-1", "--steps", "9", "--examples", "2", "--jobs", "1"
    )
    assert first == second


@fakes
def test_known_failures_exit_with_0_and_other_failures_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    Path("known.txt").write_text("false issue 7\n", encoding="utf-8")
    options = ["--examples", "3", "--jobs", "1", "--known-failures", "known.txt"]
    assert main(["verify", "true", "false", *options]) == 0
    output = capsys.readouterr().out
    assert "false: falsified, as known: issue 7" in output
    Path("known.txt").write_text("true issue 8\n", encoding="utf-8")
    assert main(["verify", "true", *options]) == 1
    assert "true is upheld now" in capsys.readouterr().err
    assert main(["verify", "false", "--examples", "3", "--jobs", "1"]) == 1
    assert "Reproduce with: theorems verify false --data " in capsys.readouterr().out
