"""The recipes of CONTRIBUTING.md: each recipe's example, a diff, is applied to a copy of the project, in which the
recipe's commands are run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

RECIPES = ROOT / "tests" / "recipes"
EXAMPLE = re.compile(r"\(tests/recipes/(\w+)\.diff\).*?```console\n(.*?)```", re.DOTALL)
"""A pattern for the name of a recipe's example and the block of commands after it."""
COMMANDS = dict(EXAMPLE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))

RECIPE_COMMANDS = {line.removeprefix("$ ") for commands in COMMANDS.values() for line in commands.splitlines()}


def changed_files(example: Path) -> set[str]:
    return set(re.findall(r"^\+\+\+ b/(.+)$", example.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with a copy of all files that git tracks."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, listed):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_each_example_has_its_recipe() -> None:
    assert {path.stem for path in RECIPES.glob("*.diff")} == {*COMMANDS}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_recipe_of_contributing_applies_and_its_commands_run(name: str, copy: Path) -> None:
    example = RECIPES / f"{name}.diff"
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {file for file in changed_files(example) if (ROOT / file).exists()}
    assert {file for file in named if f"`{file}`" not in text} == set()
    subprocess.run(["git", "apply", str(example)], cwd=copy, check=True)
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
    for line in COMMANDS[name].splitlines():
        program, *arguments = line.removeprefix("$ ").split()
        if program != "python":
            arguments = ["-m", program, *arguments]
        process = subprocess.run(
            [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stdout + process.stderr
    text = process.stdout
    assert "passed" in text or "upheld" in text
