"""Untrusted code cannot harm a run: whatever it does, a line names the statement and the case; the exit code is 3."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reference_attention.errors import InvalidInput
from tests.places import ROOT
from tests.theorems.run.attacks import DEEDS, Doing, no_sleepers
from tests.theorems.run.units import Adding, double, doubling
from theorems.command.app import main
from theorems.run.events import Event, ignore
from theorems.run.sandbox import ProcessDied, Sandbox, open_sandbox
from theorems.run.schedule import run

HOSTILE = ROOT / "tests" / "theorems" / "run" / "hostile_statements.py"
SAID = {
    "segfault": "the process that worked on it was killed by SIGSEGV in case 2, with 1 example finished",
    "leaves": "the process that worked on it ended with code 0 in case 2, with 1 example finished",
    "loops": "out of time after 3 s in case 2, with 1 example finished",
    "interrupts": "the process that worked on it failed in case 2: KeyboardInterrupt, with 1 example finished",
    "exits": "1 of 4 examples inconclusive: the conclusion raised SystemExit in",
    "out-of-memory": "1 of 4 examples inconclusive: the conclusion raised MemoryError in",
    "too-deep": "1 of 4 examples inconclusive: the conclusion raised RecursionError in",
}


@pytest.fixture
def _files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Change to a folder with a file of statements and kernels."""
    (tmp_path / "mine.py").write_text(HOSTILE.read_text())
    monkeypatch.chdir(tmp_path)


def in_one_line(code: int, capfd: pytest.CaptureFixture[str], message: str) -> None:
    out, err = capfd.readouterr()
    assert code == 3, err
    assert not out
    assert err.splitlines()[-1] == f"theorems: {message}"
    assert "Traceback" not in err


@pytest.mark.usefixtures("_files")
def test_a_hostile_statement_is_reported_with_its_case_and_the_others_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dead.py").write_text("import os\n\nos._exit(0)\n")
    ids = [f"mine.py:{id}" for id in (*SAID, "rearranges")]
    options = ["--examples", "4", "--case-timeout", "3", "--jobs", "1", "--json", "out.json"]
    assert main(["verify", *ids, "dead.py:any", "lemma-11", *options]) == 3
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    assert "garbage" not in out
    assert "garbage" in err
    result = {one["id"]: one for one in json.loads((tmp_path / "out.json").read_text())["statements"]}
    for id, reason in SAID.items():
        one = result[f"mine.py:{id}"]
        assert (one["verdict"], one["reason"][: len(reason)]) == ("inconclusive", reason), id
        assert f"mine.py:{id}: inconclusive: {reason}" in out
    assert result["mine.py:rearranges"]["verdict"] == result["lemma-11"]["verdict"] == "upheld"
    dead = result["dead.py:any"]
    assert dead["verdict"] == "inconclusive"
    assert dead["reason"].startswith("loading dead.py: the process that worked on it ended with code 0")


@pytest.mark.usefixtures("_files")
def test_a_kernel_that_crashes_in_a_call_or_in_its_probe_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    given = ["verify", "lemma-3", "--examples", "8", "--jobs", "1", "--attention"]
    assert main([*given, "mine:crashes"]) == 3
    message = "lemma-3: inconclusive: the process that worked on it was killed by SIGSEGV in case "
    assert message in capfd.readouterr().out
    message = "the probe of mine:quits: the process that worked on it ended with code 0; nothing is concluded."
    in_one_line(main([*given, "mine:quits"]), capfd, f"--attention: {message}")


@pytest.mark.usefixtures("_files")
def test_a_hunt_survives_a_hostile_statement(capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["hunt", "mine.py:leaves", "--cases", "9"])
    message = "hunting mine.py:leaves, case 2: the process that worked on it ended with code 0; nothing is concluded."
    in_one_line(code, capfd, message)


SCRIPT = """
from theorems import check_attention, verify
from theorems.run.sandbox import ProcessDied

try:
    check_attention("endless:kernel")
except ProcessDied as error:
    print(error)
print(verify("mine.py:leaves", "mine.py:rearranges", examples=3))
"""


def test_a_script_without_a_main_guard_can_verify(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HOSTILE.read_text())
    (tmp_path / "endless.py").write_text("import os\n\nos.abort()\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "script.py"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    first = process.stdout.splitlines()[0]
    assert first.startswith("--attention: loading endless:kernel: the process that worked on it was killed by SIGABRT")
    assert "Traceback" not in process.stderr
    assert "mine.py:leaves: inconclusive: the process that worked on it ended with code 0 in case 2" in process.stdout


@pytest.mark.parametrize(
    ("manner", "why"),
    [
        ("raises", "the process that worked on it failed at step 3: ZeroDivisionError: by nothing"),
        ("exits", "the process that worked on it ended with code 7 at step 3"),
        ("is killed", "the process that worked on it was killed by SIGKILL, perhaps for lack of memory, 3 times"),
        ("follows a null pointer", "the process that worked on it was killed by SIGSEGV at step 3"),
        ("leaves a child", "the process that worked on it ended with code 0 at step 3"),
        ("hangs", "out of time after 0.5 s at step 3"),
        # The process ends itself when its heartbeat cannot be sent, or the supervisor ends it; either can be first.
        ("closes everything", "the process that worked on it (closed its connection|ended with code 1) at step 3"),
        ("sends rubbish", "the process that worked on it sent something that is not a result at step 3"),
    ],
)
def test_an_untrusted_unit_that_fails_is_reported_with_its_step(manner: str, why: str) -> None:
    wrong, right = run([Adding("wrong", manner=manner, foreign=True), Adding("right")], 1, ignore, patience=0.5)
    assert re.match(why, wrong.failed)
    assert wrong.steps == 2
    assert right.value == 10


def test_a_call_in_the_sandbox_returns_a_value_or_raises_what_went_wrong() -> None:
    with open_sandbox(1, 5.0) as sandbox:
        assert sandbox.call(doubling, double, 4) == 8
        with pytest.raises(InvalidInput, match="give something"):
            sandbox.call(doubling, double, None)
        with pytest.raises(ProcessDied, match=r"^doubling, step 0: .* ended with code 0; nothing is concluded"):
            sandbox.call(doubling, double, "die")
        assert sandbox.call(doubling, double, 4) == 8


class Answering:
    """A pool whose process sends the given messages."""

    def __init__(self, *messages: tuple[str, Any]) -> None:
        self.messages = messages

    def work(
        self, order: list[int], unit: Callable[[int], Any], on_message: Callable[..., None], *, patience: float
    ) -> Iterator[None]:
        for word, value in self.messages:
            on_message(order[0], word, value)
            yield


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([("failed", "ValueError: 3")], "doubling, step 0: the process that worked on it failed: ValueError: 3"),
        ([("progressed", 2), ("failed", "x")], "doubling, step 2: the process that worked on it failed: x"),
        (
            [("progressed", 4), ("died", "was killed by SIGKILL")],
            "doubling, step 4: the process that worked on it was killed by",
        ),
        ([("out of patience", None)], "doubling, step 0: out of time after 7 s"),
    ],
)
def test_a_call_in_the_sandbox_without_a_value_reports_at_which_step_it_ended(
    messages: list[tuple[str, Any]], message: str
) -> None:
    sandbox: Any = Sandbox.__new__(Sandbox)
    sandbox.pool, sandbox.patience, sandbox.isolates = Answering(*messages), 7.0, True
    with pytest.raises(ProcessDied, match=f"^{re.escape(message)}"):
        sandbox.call(doubling, double, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="processes that leave their session are ended on Linux")
def test_no_attack_runs_in_this_process_or_leaves_a_process(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    units: list[Any] = [Doing(name, str(mark)) for name in DEEDS]
    notices: list[Event] = []
    with no_sleepers():
        *results, right = run([*units, Adding("right")], 2, notices.append, patience=2.0)
    assert not mark.exists()
    assert right.value == 10
    assert [result.id for result in results] == list(DEEDS)
    for result in results:
        assert (result.value, result.failed) == (4, "") or result.failed.startswith(
            ("the process that worked on it ", "out of time after 2 s")
        ), result
    forged = ("pickles as lines", "results of other units", "a result that is none", "words of its own", "deep")
    reasons = {result.id: result.failed for result in results}
    for name in (*forged, "a flood of messages", "a flood without an end of line", "patched JSON"):
        assert "sent something that is not a result" in reasons[name], (name, reasons[name])
    assert reasons["forks and returns twice"] == reasons["an old message"] == reasons["leaves a session"] == ""
