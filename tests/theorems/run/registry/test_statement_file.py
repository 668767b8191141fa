"""A new file with a statement in a paper's package suffices for list, show, verify and hunt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

FILE = '''"""Lemma 99: for one input the softmax weights sum to one."""

from collections.abc import Iterator

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.risk import softmax_weights
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance

SUM = tolerance("sum-of-weights", "8 eps T", "T weights, each rounded a few times")


@statement(
    "lemma-99",
    "The weights of one input sum to one",
    source="nowhere",
    assumptions=("single-input",),
    kernel=calls("its weights", turn=9),
)
def lemma_99(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If n = 1, then Σ_it s_it = 1 at every p."""
    problem = case.problem
    total = under_test[softmax_weights](problem.keys, case.rng().normal(size=(8, problem.d))).sum(axis=(-2, -1))
    for name, left, right in (("at-least-one", total, 1.0), ("at-most-one", 1.0, total)):
        yield at_least(name, Form.EXACT, left, right, rounding=8 * EPS * problem.T, why=SUM)
'''


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of all packages with one more file, which has a statement."""
    folder = tmp_path_factory.mktemp("house")
    for package in ("max_margin_theorems", "reference_attention", "generators", "theorems", "attention_conformance"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "theorems" / "token_selection" / "softmax" / "lemma_99_sum_of_weights.py").write_text(FILE)
    return folder


def theorems(house: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the copy."""
    return python(house, "-m", "theorems", *arguments)


def python(house: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(house), "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)


def test_a_new_statement_is_listed_and_shown_with_its_tolerance(house: Path) -> None:
    """Run three commands in one process, since starting a process takes longer than the commands."""
    code = "from theorems.command.app import main\nfor line in {}:\n    main(line.split()); print('next command')"
    process = python(house, "-c", code.format(["list", "show lemma-99", "list tolerances"]))
    listed, shown, tolerances, _ = process.stdout.split("next command\n")
    assert "lemma-99" in listed
    assert "Σ_it s_it = 1" in shown
    assert "sum-of-weights" in shown
    assert "sum-of-weights" in tolerances


def test_a_new_statement_is_verified(house: Path) -> None:
    process = theorems(house, "verify", "lemma-99", "--examples", "5", "--json", "results.json", "--jobs", "2")
    assert process.returncode == 0, process.stderr
    (result,) = json.loads((house / "results.json").read_text())["statements"]
    assert (result["verdict"], result["examples"]) == ("upheld", 5)
    assert {claim["why"] for claim in result["claims"]} == {"sum-of-weights"}


def test_a_new_statement_is_hunted_without_its_assumption(house: Path) -> None:
    process = theorems(house, "hunt", "lemma-99", "--without", "single-input", "--seconds", "60")
    assert process.returncode == 1, process.stdout + process.stderr
    assert "lemma-99 without single-input: refuted" in process.stdout
