"""The README keeps up with the code: its commands exist, its tables are those of the registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from generators.datasets import DATASETS, dataset_named
from tests.places import ROOT
from theorems.command.app import main
from theorems.registry.suite import statements

README = (ROOT / "README.md").read_text()
TARGETS = sorted(set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE)))


def test_the_two_commands_are_there() -> None:
    assert {"verify", "test"} <= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_make_targets_exist(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_target_that_does_not_exist_is_noticed() -> None:
    assert subprocess.run(["make", "-n", "nothing"], cwd=ROOT, capture_output=True, check=False).returncode != 0


def test_the_table_of_statements_is_the_registry() -> None:
    table = README.partition("## What is verified")[2]
    rows = re.findall(r"^\| `([a-z0-9-]+)`[^|]*\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    assert rows == [(one.id, one.title, one.source) for one in statements().values()]


@pytest.mark.parametrize("id", sorted(set(re.findall(r"theorems show ([a-z0-9-]+)", README))))
def test_what_it_shows_exists(id: str) -> None:
    assert main(["show", id]) == 0


@pytest.mark.parametrize("name", sorted(set(re.findall(r"--data ([a-z0-9-]+)(?![a-z0-9.-])", README))))
def test_named_datasets_exist(name: str) -> None:
    assert dataset_named(name).name


def test_the_library_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = README.partition("## As a library")[2].partition("```python\n")[2].partition("```")[0]
    data = DATASETS["figure-1a"]().problem
    monkeypatch.chdir(tmp_path)
    exec(example, {"keys": data.keys, "scores": data.scores})
    assert list(tmp_path.glob("counterexamples/theorem-2-without-single-input-*.json"))
