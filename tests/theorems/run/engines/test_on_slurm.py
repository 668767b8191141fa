"""Slurm through submitit, on its local executor: processes here in place of an array's jobs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.theorems.run.test_crew import Listening
from tests.theorems.run.units import Adding, Letters
from theorems.command.app import main
from theorems.core.exit_code import Exit
from theorems.run.engines import on_slurm
from theorems.run.engines.coordinator import Coordinator
from theorems.run.engines.on_slurm import OnSlurm
from theorems.run.identity import identity
from theorems.run.processes import run

pytestmark = [
    pytest.mark.skipif(find_spec("submitit") is None, reason='pip install "max-margin-theorems[slurm]"'),
    pytest.mark.skipif(sys.platform == "win32", reason="submitit's local executor needs signals"),
]
RUN = identity("add")


def test_jobs_share_the_units_and_one_that_dies_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_slurm, "ARRAY", 2)
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    engine = OnSlurm(tmp_path / "j", "local")
    assert engine.per_task(9) == 5
    text = "abcdef"
    units: list[Any] = [Letters("cut", text, folder=str(tmp_path), seconds=0.05), Adding("dies", manner="exits")]
    listening = Listening()
    cut, dies = run(units, 1, listening, engine=Coordinator(engine, RUN, tmp_path / "j"))
    engine.close()
    assert [cut] == run([Letters("cut", text)], 1, Listening())
    assert dies.failed.endswith("ended with code 7, 3 times at the same place")
    assert sorted((tmp_path / "cut").read_text().split()) == list(text)
    journals = list((tmp_path / "j.workers").glob("*.jsonl"))
    assert len(journals) == 2  # a worker each


def test_a_job_that_is_killed_is_submitted_again(tmp_path: Path) -> None:
    class Killing(OnSlurm):
        killed = 0

        def look(self) -> str:
            if (tmp_path / "cut").exists() and not self.killed:
                self.killed = 1
                for job, _ in self._jobs:
                    job._process.kill()
            return super().look()

    engine = Killing(tmp_path / "j", "local")
    units = [Letters("cut", "abcd", folder=str(tmp_path), seconds=0.3)]
    listening = Listening()
    found = run(units, 1, listening, engine=Coordinator(engine, RUN, tmp_path / "j"))
    engine.close()
    assert engine.killed
    assert found == run([Letters("cut", "abcd")], 1, Listening())


@pytest.mark.parametrize(
    ("name", "said"),
    [("slurm", "there is no sbatch here"), ("slurm:local", "needs --resume FILE")],
)
def test_what_it_needs_is_said(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["verify", "lemma-11", "--engine", name]) == Exit.BAD_INPUT
    assert said in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main(["verify", "lemma-11", "--engine", name]) == Exit.BAD_INPUT
    assert capsys.readouterr().err.endswith('needs submitit: pip install "max-margin-theorems[slurm]"\n')
