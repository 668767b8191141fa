"""Signals, closed pipes and full disks: finished results are written, with one sentence, a sane exit code and no
traceback.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.places import ROOT

FAKE = [sys.executable, str(ROOT / "tests" / "theorems" / "fake_statements.py")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}


pytestmark = pytest.mark.usefixtures("own_directory")


def _as_of_a_terminal() -> None:
    """Reset signals to the defaults of a command started in a terminal: tests run under ``nohup`` ignore some signals,
    and children would inherit that.
    """
    for number in CODES:
        signal.signal(number, signal.SIG_DFL)


def started(program: list[str], *arguments: str, **options: object) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": _as_of_a_terminal, **options}
    return subprocess.Popen([*program, *arguments], text=True, env=ENVIRONMENT, start_new_session=True, **pipes)  # type: ignore[call-overload,no-any-return]


INTERRUPTIONS = [(signal.SIGINT, jobs, group) for jobs in ("1", "2") for group in (False, True)]


@pytest.mark.parametrize(
    ("number", "jobs", "group"), [*INTERRUPTIONS, (signal.SIGTERM, "2", False), (signal.SIGHUP, "1", False)]
)
def test_finished_results_are_written_on_a_signal(number: signal.Signals, jobs: str, group: bool) -> None:
    """The signal is sent to the command alone or, like Ctrl-C in a terminal, to its process group."""
    files = ["--json", "r.json", "--resume", "r.jsonl"]
    process = started(FAKE, "verify", "slow", "true", "--examples", "200", "--jobs", jobs, *files)
    assert process.stderr is not None
    assert "true" in process.stderr.readline()  # the quick statement has finished
    time.sleep(2.0)  # some examples of the slow statement have finished
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == CODES[number]
    assert "Traceback" not in err
    assert "interrupted" in out
    slow, true = json.loads(Path("r.json").read_text(encoding="utf-8"))["statements"]
    assert (slow["verdict"], true["verdict"], true["examples"]) == ("inconclusive", "upheld", 200)
    assert slow["examples"] > 0
    assert "interrupted" in slow["reason"]
    kept = [json.loads(line) for line in Path("r.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [item["unit"] for item in kept if "result" in item] == ["Unit true"]


@pytest.mark.parametrize("number", list(CODES))
def test_a_signal_while_the_command_starts_ends_it_cleanly(number: signal.Signals) -> None:
    """The signal arrives while the command imports typer, after our handlers are set; before that Python handles it."""
    code = f"import os, signal; os.kill(os.getpid(), signal.{number.name})"
    hook = "import builtins, sys; usual = builtins.__import__\n"
    hook += "def load(name, *rest):\n    if name == 'typer':\n        " + code + "\n    return usual(name, *rest)\n"
    hook += "builtins.__import__ = load\nfrom max_margin_theorems.command import main; sys.exit(main())"
    process = started([sys.executable, "-c", hook], "list")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (CODES[number], "", "theorems: interrupted.\n")


def test_ignored_signals_stay_ignored() -> None:
    """A command started with nohup ignores SIGHUP."""
    hook = "import signal; from max_margin_theorems import signals; signals.listen()\n"
    hook += "signal.raise_signal(signal.SIGHUP)"
    process = started([sys.executable, "-c", hook], preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.communicate(timeout=30)
    assert process.returncode == 0


VERIFY_INTO_A_FILE = [*FAKE, "verify", "true", "false", "--examples", "9", "--jobs", "1", "--json", "r.json"]


@pytest.mark.parametrize("command", [VERIFY_INTO_A_FILE, [sys.executable, "-m", "theorems", "list", "tolerances"]])
def test_a_closed_standard_output_gives_no_verdict_and_loses_no_file(command: list[str]) -> None:
    process = started(command)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    assert process.wait(30) == 141
    process.stderr.close()
    if command is VERIFY_INTO_A_FILE:
        assert len(json.loads(Path("r.json").read_text(encoding="utf-8"))["statements"]) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at hand")
def test_a_full_disk_is_reported_in_one_sentence() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        process = started(FAKE, "verify", "true", "true-too", "--examples", "3", "--jobs", "1", stdout=full)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 2
        *_, last = err.splitlines()
        assert last == "theorems: standard output cannot be written (No space left on device)."
        assert "Traceback" not in err
        # Progress cannot be printed, but the verdicts are unchanged.
        process = started(FAKE, "verify", "true", "false", "--examples", "9", "--jobs", "1", stderr=full)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "falsified" in out
