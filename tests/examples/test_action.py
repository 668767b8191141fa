"""The composite action: its inputs are used, and its script passes on a right kernel and fails on a wrong one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from attention_conformance.kernel.profiles import profile_named
from tests.places import ROOT

TEXT = (ROOT / "action.yml").read_text(encoding="utf-8")
ACTION: dict[str, Any] = yaml.safe_load(TEXT)
(STEP,) = (step for step in ACTION["runs"]["steps"] if "theorems verify" in step.get("run", ""))


def run(tmp_path: Path, **given: str) -> int:
    """Run the script with two capabilities in place of the profile, and return its exit code."""
    inputs = {name: input.get("default", "") for name, input in ACTION["inputs"].items()} | given
    filled = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs[m[1]], text)
              for name, text in STEP["env"].items()}  # fmt: skip
    (tmp_path / "theorems").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m theorems "$@"\n')
    (tmp_path / "theorems").chmod(0o755)
    few = STEP["run"].replace('${PROFILE:+--profile "$PROFILE"}', "kernel-log-sum-exp kernel-scale --examples 2")
    assert few != STEP["run"]
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", few]
    return subprocess.run(script, cwd=tmp_path, env={**os.environ, **path, **filled}, check=False).returncode


@pytest.mark.parametrize(("kernel", "code"), [("attention:tiled", 0), ("log_sum_exp:lse_in_base_two", 1)])
def test_the_script_of_the_action_passes_on_a_right_kernel_and_fails_on_a_wrong_one(
    kernel: str, code: int, tmp_path: Path
) -> None:
    assert run(tmp_path, kernel=f"examples.real_faults.{kernel}", dtype="float64") == code
    folder = tmp_path / ACTION["inputs"]["folder"]["default"]
    assert [path.name.partition("-sum")[0] for path in folder.rglob("*.npz")] == ["kernel-log"] * code


def test_a_shell_command_given_as_the_kernel_is_taken_for_a_name(tmp_path: Path) -> None:
    assert run(tmp_path, kernel="$(touch here); touch here") == 2
    assert not (tmp_path / "here").exists()


def test_each_input_of_the_action_is_used() -> None:
    assert [name for name in ACTION["inputs"] if f"inputs.{name} }}}}" not in TEXT.partition("\nruns:")[2]] == []
    assert all("inputs." not in step.get("run", "") for step in ACTION["runs"]["steps"])
    assert profile_named(ACTION["inputs"]["profile"]["default"])
