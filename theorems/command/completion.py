"""Completions for a shell: ids, assumptions, data, rules of benchmarks, figures, engines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from max_margin_theorems.papers import folders_of, papers

ROOM = Path(__file__).parents[1]
TABLES = ("assumptions", "data", "tolerances", "drawn", "counterexamples")
"""The tables that ``theorems list`` can print."""


def ids(incomplete: str) -> list[str]:
    """Return the ids of statements that complete the text.

    The ids are read from the source files, since importing the statements takes longer than a user waits for a shell.
    """
    rooms = [ROOM, *(folder for paper in papers() if paper.package for folder in folders_of(paper.top))]
    texts = (file.read_text(encoding="utf-8") for room in rooms for file in room.rglob("*.py"))
    matches = {id for text in texts for id in re.findall(r'^@statement\(\s*"([^"]+)"', text, re.MULTILINE)}
    return _beginning(incomplete, sorted(matches, key=lambda id: (len(id), id)))


def lists(incomplete: str) -> list[str]:
    """Return names of tables of ``theorems list``, and ids of statements, which may follow some of the tables."""
    return [*_beginning(incomplete, TABLES), *ids(incomplete)]


def definitions_or_assumptions(incomplete: str) -> list[str]:
    """Return the ids of statements, definitions and assumptions that complete the text."""
    from theorems.run.registry.suite import definitions

    return [*ids(incomplete), *_beginning(incomplete, definitions()), *assumptions(incomplete)]


def assumptions(incomplete: str) -> list[str]:
    """Return the ids of assumptions that complete the text."""
    from theorems.run.registry import suite

    return _beginning(incomplete, suite.assumptions())


def data(incomplete: str) -> list[str]:
    """Return the names of datasets, the .npz and .json files, and the folders that complete the text."""
    from generators.datasets import all_data

    folder, _, stem = incomplete.rpartition("/")
    directory = Path(folder or ("/" if incomplete.startswith("/") else "."))
    prefix = f"{folder}/" if "/" in incomplete else ""
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    files_and_folders = [
        f"{prefix}{file.name}{'/' if file.is_dir() else ''}"
        for file in files
        if file.name.startswith(stem) and (file.is_dir() or file.suffix in (".npz", ".json"))
        if stem.startswith(".") or not file.name.startswith(".")
    ]
    return [*_beginning(incomplete, all_data()), *files_and_folders]


def rules(incomplete: str) -> list[str]:
    """Return the names of the rules that ``theorems bench`` runs by default and that complete the text."""
    from theorems.benchmark.rules import DEFAULT

    return _beginning(incomplete, DEFAULT)


def figures(incomplete: str) -> list[str]:
    """Return the names of figures that complete the text."""
    from theorems.figures.registry import FIGURES

    return _beginning(incomplete, FIGURES)


def engines(incomplete: str) -> list[str]:
    """Return the values of ``--engine`` that complete the text."""
    return _beginning(incomplete, ("local", "dask://"))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
