"""The workflow to copy: its command line is valid, passes on a right kernel, fails on a wrong one, and its upload
exists.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from attention_conformance.kernel.profiles import profile_named
from tests.places import ROOT
from theorems.command.app import main

WORKFLOW = (ROOT / "examples" / "ci" / "attention.yml").read_text(encoding="utf-8")


def command(kernel: str) -> list[str]:
    """Return the arguments of the workflow's command line, with two capabilities in place of the profile."""
    (line,) = re.findall(r"^ +- run: theorems (.*)$", WORKFLOW, re.MULTILINE)
    given = shlex.split(line.replace("$KERNEL", kernel))
    at = given.index("--profile")
    assert profile_named(given[at + 1]).name == "minute"
    given[at : at + 2] = ["kernel-log-sum-exp", "kernel-scale", "--examples", "2"]
    return given


@pytest.mark.parametrize(("kernel", "code"), [("attention:tiled", 0), ("log_sum_exp:lse_in_base_two", 1)])
def test_the_command_of_the_workflow_passes_on_a_right_kernel_and_fails_on_a_wrong_one(
    kernel: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("falsified").mkdir()
    Path("known_failures.txt").write_text("")
    assert main(command(f"examples.real_faults.{kernel}")) == code
    names = {path.name.partition(".")[0].partition("-")[0] for path in Path("falsified").iterdir()}
    assert names == (set() if code == 0 else {"kernel"})


def test_the_workflow_names_this_package() -> None:
    assert 'pip install "max-margin-theorems[kernels]"' in WORKFLOW
    assert "KERNEL: my_package.attention:kernel" in WORKFLOW
