"""The command: exit codes, bad input in one sentence, the same output for the same seed, results kept on Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from generators.case import Case
from generators.user_data import as_text
from reference_attention.problem import Problem
from tests.places import ROOT
from tests.theorems.fake_statements import FAKES
from tests.verify_schema import read_results
from theorems.command.app import app, main
from theorems.run.registry.suite import tolerances

FAKE_COMMAND = ROOT / "tests" / "theorems" / "fake_statements.py"


pytestmark = pytest.mark.usefixtures("own_directory")


fakes = pytest.mark.usefixtures("fake_statements")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}


def in_a_process(*arguments: str, fake: bool = False) -> subprocess.CompletedProcess[str]:
    command = [str(FAKE_COMMAND)] if fake else ["-m", "theorems"]
    return subprocess.run(
        [sys.executable, *command, *arguments], capture_output=True, text=True, env=environment(), timeout=120
    )


def verified(path: str = "report.json") -> dict[str, Any]:
    report = read_results(Path(path).read_text(encoding="utf-8"))
    for statement in report["statements"]:
        statement["seconds"] = 0
    return report


# ---- exit codes ------------------------------------------------------------------------------------------


@fakes
@pytest.mark.parametrize(
    ("ids", "code"),
    [
        (["true"], 0),
        (["true", "single"], 3),
        (["false"], 1),
        (["true", "false", "undecided"], 1),
        (["undecided"], 3),
        (["true", "undecided"], 3),
        (["broken"], 3),
        (["silent"], 3),
        (["never"], 3),
        (["true", "never"], 3),
    ],
)
def test_the_exit_code_is_that_of_the_gravest_verdict(
    ids: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", *ids, "--examples", "20", "--jobs", "1"]) == code
    table = capsys.readouterr().out
    assert all(id in table for id in ids)


@fakes
def test_nothing_applicable_is_not_a_pass(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("two.npz", keys=np.ones((2, 2, 1)), scores=np.zeros((2, 2)), p0=np.ones(1))
    assert main(["verify", "single", "--data", "two.npz"]) == 3
    captured = capsys.readouterr()
    assert "nothing was checked" in captured.err
    assert "does not hold" in captured.out
    assert main(["verify", "single", "true", "--jobs", "1", "--data", "two.npz"]) == 0


def bad_files() -> None:
    np.save("array.npy", np.ones(3))
    np.savez("pickled.npz", X=np.array([{}], dtype=object), Y=np.ones(1), v=np.ones(1))
    np.savez("names.npz", tokens=np.ones((1, 2, 2)))
    np.savez("shapes.npz", X=np.ones((2, 3, 2)), Y=np.ones(5), v=np.ones(2))
    np.savez("single.npz", X=np.ones((2, 1, 2)), Y=np.ones(2), v=np.ones(2))
    np.savez("labels.npz", X=np.ones((2, 3, 2)), Y=np.array([0, 1]), v=np.ones(2))
    whole = Path("names.npz").read_bytes()
    Path("truncated.npz").write_bytes(whole[: len(whole) // 2])
    Path("renamed.npz").write_bytes(Path("array.npy").read_bytes())
    Path("folder.npz").mkdir()
    Path("a-file").write_text("")


@fakes
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "lemma-0"], "'lemma-0' is not a statement"),
        (["show", "lemma-0"], "'lemma-0' is not the id of a statement, a definition or an assumption"),
        (["verify", "true", "--examples", "0"], "--examples"),
        (["verify", "true", "--examples", "-3"], "--examples"),
        (["verify", "true", "--examples", "many"], "--examples"),
        (["verify", "true", "--seed", "-1"], "--seed"),
        (["verify", "true", "--seed", "newest"], "newest is not a seed; give a whole number, 0 or larger, or 'fresh'"),
        (["verify", "true", "--jobs", "-1"], "--jobs"),
        (["verify", "true", "--wrong"], "--wrong"),
        (["prove"], "prove"),
        (["verify", "true", "--data", "missing.npz"], "no such file"),
        (["verify", "true", "--data", "nowhere"], "nowhere"),
        (["verify", "true", "--data", "array.npy"], "array.npy"),
        (["verify", "true", "--data", "renamed.npz"], "numpy.savez"),
        (["verify", "true", "--data", "truncated.npz"], "damaged"),
        (["verify", "true", "--data", "pickled.npz"], "pickled"),
        (["verify", "true", "--data", "names.npz"], "unknown name 'tokens'"),
        (["verify", "true", "--data", "shapes.npz"], "Y: shape"),
        (["verify", "true", "--data", "single.npz"], "T = 1"),
        (["verify", "true", "--data", "labels.npz"], "give 2*Y - 1"),
        (["verify", "true", "--data", "folder.npz"], "directory"),
        (["verify", "true", "--json", "missing/report.json"], "missing"),
        (["verify", "true", "--json", "folder.npz"], "directory"),
        (["verify", "true", "--out", "a-file"], "not a directory"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad_files()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("theorems: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert "Traceback" not in captured.err


@fakes
def test_an_internal_error_is_not_reported_as_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("theorems.command.verify.results_table", broken)
    assert main(["verify", "true", "--examples", "2"]) == 3
    assert "out of order" in capsys.readouterr().err


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "verify" in capsys.readouterr().out
    assert main(["--help"]) == 0


# ---- what is reported ------------------------------------------------------------------------------------


@fakes
def test_the_json_report_has_the_options_and_every_statement(capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["true", "false", "undecided", "broken"]
    arguments = ["verify", *ids, "--examples", "15", "--seed", "4", "--jobs", "1", "--json", "report.json"]
    assert main(arguments) == 1
    report = verified()
    assert report["seed"] == 4
    assert report["examples"] == 15
    assert {"version", "seed", "examples", "statements"} <= report.keys()
    assert [statement["id"] for statement in report["statements"]] == ids
    for statement in report["statements"]:
        assert {"id", "verdict", "examples", "seconds", "claims", "reason"} <= statement.keys()
        for claim in statement["claims"]:
            assert {"name", "worst_slack", "tolerance"} <= claim.keys()
    verdicts = [statement["verdict"] for statement in report["statements"]]
    assert verdicts == ["upheld", "falsified", "inconclusive", "inconclusive"]
    first = capsys.readouterr().out
    assert main(arguments) == 1
    assert verified() == report
    seconds = re.compile(r"\d+\.\d")
    assert seconds.sub("", capsys.readouterr().out) == seconds.sub("", first)
    # A statement's result does not depend on the other statements of the run.
    assert main(["verify", "undecided", "--examples", "15", "--seed", "4", "--json", "report.json"]) == 3
    assert verified()["statements"] == [report["statements"][2]]


@fakes
def test_json_is_written_to_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert main(["verify", "true", "--examples", "2", "--json", str(pipe)]) == 0
    assert json.loads(os.read(reader, 65536))["examples"] == 2
    os.close(reader)
    assert pipe.is_fifo()


@fakes
def test_a_failure_reproduces_from_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    for id, code in (("false", 1), ("broken", 3)):
        assert main(["verify", id, "--examples", "30", "--json", "report.json"]) == code
        output = capsys.readouterr().out
        lines = [line.strip() for line in output.splitlines() if "Reproduce with: " in line]
        assert len(lines) == 1
        command = shlex.split(lines[0].removeprefix("Reproduce with: "))
        assert command[:3] == ["theorems", "verify", id]
        assert Path(command[-1]).parent == Path("falsified")
        assert main([*command[1:], "--json", "again.json"]) == code
        again = verified("again.json")["statements"][0]
        assert again["examples"] == 1
        assert again["verdict"] == ("falsified" if code == 1 else "inconclusive")
        capsys.readouterr()
        # The saved file names its statement.
        assert main(["verify", "--data", command[-1]]) == code
        assert lines[0] in capsys.readouterr().out or code == 3
    assert "one-input" in json.loads(next(Path("falsified").glob("false-*.json")).read_text())["claim"]


@fakes
def test_a_case_that_cannot_be_written_is_still_falsified(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert main(["verify", "false", "--examples", "30", "--out", "file/below"]) == 1
    assert "could not be written" in capsys.readouterr().out


@fakes
def test_data_of_a_user_that_falsify_are_written_too(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(Problem(np.ones((2, 2, 1)), np.zeros((2, 2))), alpha=np.array([1, 0]), name="[bold]odd[/bold]")
    Path("mine.json").write_text(as_text(case))
    assert main(["verify", "false", "--data", "mine.json", "--out", "elsewhere"]) == 1
    assert "elsewhere/false-" in capsys.readouterr().out
    assert len(list(Path("elsewhere").iterdir())) == 1


@fakes
def test_bad_input_noticed_during_the_run_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("far.npz", keys=np.full((1, 2, 1), 1e-140), scores=np.zeros((1, 2)), u=np.ones(1), eta=np.array(1e-50))
    assert main(["verify", "true", "--data", "far.npz"]) == 2
    assert "eta: magnitudes leave float64" in capsys.readouterr().err


@fakes
def test_the_commands_show_and_list_describe_statements_and_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    heads = re.findall("^ (statement|capability|definition|assumption) ", listed, re.MULTILINE)
    assert heads == ["statement", "capability", "definition", "assumption"]
    assert all(id in listed for id in FAKES)
    assert main(["show", "also-true"]) == 0
    output = capsys.readouterr().out
    for part in ("true = also-true", "Source: no paper", "A second paragraph", "rounding"):
        assert part in output
    assert main(["show", "single-input"]) == 0
    assert "Assumed by: never, single" in capsys.readouterr().out
    assert main(["list", "assumptions"]) == 0
    assert "equal-non-optimal-scores" in capsys.readouterr().out


def test_every_tolerance_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "tolerances"]) == 0
    table = capsys.readouterr().out
    assert all(key in table for key in tolerances())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "Missing argument 'ID'."),
        (
            ["list", "lemma-3"],
            "list: 'lemma-3' is not a table; give one of assumptions, data, tolerances, drawn, counterexamples.",
        ),
        (["list", "data", "lemma-3"], "list: data takes no ids; only drawn and counterexamples do."),
        (["list", "counterexamples", "lemma-99"], "'lemma-99' is not a statement"),
    ],
)
def test_bad_arguments_of_show_and_list_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not printed.out


# ---- as a process ----------------------------------------------------------------------------------------


def test_results_do_not_depend_on_processes_and_their_number() -> None:
    ids = ["true", "false", "undecided", "broken", "never"]
    reports, outputs = [], []
    for jobs in ("1", "2"):
        process = in_a_process("verify", *ids, "--examples", "10", "--jobs", jobs, "--json", "report.json", fake=True)
        assert process.returncode == 1, process.stderr
        reports.append(verified())
        outputs.append(re.sub(r"\d+\.\d", "", process.stdout))
        assert "\x1b" not in process.stdout + process.stderr
        assert "\r" not in process.stdout + process.stderr
        assert process.stderr.count("\n") == len(ids)
    assert reports[0] == reports[1]
    assert outputs[0] == outputs[1]


def test_user_data_are_sent_to_other_processes() -> None:
    Path("mine.json").write_text(as_text(Case(Problem(np.ones((2, 2, 1)), np.zeros((2, 2))), start=np.ones(1))))
    process = in_a_process("verify", "true", "false", "--jobs", "2", "--data", "mine.json", fake=True)
    assert process.returncode == 1, process.stderr
    assert "one-input" in process.stdout


def test_the_command_runs_under_python_dash_m() -> None:
    process = in_a_process("verify", "lemma-0")
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.count("\n") == 1
    assert in_a_process("list").returncode == 0


@pytest.mark.parametrize("option", ["--help", "list"])
def test_the_command_starts_without_torch_and_matplotlib(option: str) -> None:
    loaded = "import sys; from theorems.command.app import main; main(['{}']); print(*sys.modules, file=sys.stderr)"
    process = subprocess.run(
        [sys.executable, "-c", loaded.format(option)], capture_output=True, text=True, env=environment(), timeout=60
    )
    modules = set(process.stderr.split())
    assert "typer" in modules
    assert not modules & {"torch", "sklearn", "cvxpy", "matplotlib"}
    if option == "--help":
        assert not modules & {"numpy", "hypothesis", "scipy"}


def test_no_placeholder_is_the_name_of_its_option() -> None:
    """Versions of typer before 0.29 print such a placeholder instead of the option: ``--DEVICE``."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = [option for command in commands.values() for option in command.params if option.opts[0].startswith("-")]
    assert len(options) > 30
    assert [option.opts for option in options if option.metavar == option.name.upper()] == []
