"""Shell completion: ids, assumptions, data, rules and figures, as the registries have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generators.datasets import DATASETS
from tests.places import ROOT
from theorems.command import completion
from theorems.figures.registry import FIGURES
from theorems.run.registry.suite import assumptions, statements


def completed(line: str) -> list[str]:
    """Return the words that bash would offer."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_THEOREMS_COMPLETE": "complete_bash"}
    process = subprocess.run(
        [sys.executable, "-m", "theorems"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **words},
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.split()


def test_a_shell_completes_ids_and_options() -> None:
    assert completed("theorems verify lemma-1") == [f"lemma-1{n}" for n in ("", 0, 1, 2, 3, 4)]
    assert completed("theorems hunt theorem-2 --without single") == ["single-input"]
    assert completed("theorems list count") == ["counterexamples"]


def test_completion_offers_exactly_the_registered_names() -> None:
    assert sorted(completion.ids("")) == sorted(statements())
    assert completion.assumptions("") == list(assumptions())
    assert completion.figures("") == list(FIGURES)
    assert {"theorem-2", "definition-3", "separable"} <= set(completion.definitions_or_assumptions(""))
    assert completion.rules("gd") == ["gd-1", "gd-1/L"]


def test_data_are_completed_by_names_and_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("figures").mkdir()
    for name in ("figs.npz", "figs.txt", "figures/one.json", ".hidden.json"):
        Path(name).touch()
    assert completion.data("fig") == [*(n for n in DATASETS if n.startswith("fig")), "figs.npz", "figures/"]
    assert completion.data("figures/") == ["figures/one.json"]
    assert completion.data("nowhere/x") == []
