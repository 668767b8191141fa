"""Completions for a shell: ids, assumptions, data, faults, rules, figures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from max_margin_theorems.papers import folders_of, papers

ROOM = Path(__file__).parents[1]
TABLES = ("assumptions", "data", "tolerances", "drawn", "counterexamples")
"""The tables that ``theorems list`` can print."""


def ids(incomplete: str) -> list[str]:
    """Return the ids of statements.

    The ids are read from the source files, since importing the statements takes longer than a user waits for a shell.
    """
    rooms = [ROOM, *(folder for paper in papers() if paper.package for folder in folders_of(paper.top))]
    texts = (file.read_text(encoding="utf-8") for room in rooms for file in room.rglob("*.py"))
    matches = {id for text in texts for id in re.findall(r'^@statement\(\s*"([^"]+)"', text, re.MULTILINE)}
    return _beginning(incomplete, sorted(matches, key=lambda id: (len(id), id)))


def lists(incomplete: str) -> list[str]:
    """Return the tables of ``theorems list``, and the ids of statements, which may follow some of them."""
    return [*_beginning(incomplete, TABLES), *ids(incomplete)]


def definitions_or_assumptions(incomplete: str) -> list[str]:
    """Return statements, definitions and assumptions."""
    from theorems.run.registry.suite import definitions

    return [*ids(incomplete), *_beginning(incomplete, definitions()), *assumptions(incomplete)]


def assumptions(incomplete: str) -> list[str]:
    """Return the assumptions."""
    from theorems.run.registry import suite

    return _beginning(incomplete, suite.assumptions())


def data(incomplete: str) -> list[str]:
    """Return the named datasets, the .npz and .json files, and the folders."""
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


def faults(incomplete: str) -> list[str]:
    """Return planted faults."""
    from theorems.faults import FAULTS

    return _beginning(incomplete, FAULTS)


def rules(incomplete: str) -> list[str]:
    """Return the default rules of ``theorems bench``."""
    from theorems.benchmark.rules import DEFAULT

    return _beginning(incomplete, DEFAULT)


def figures(incomplete: str) -> list[str]:
    """Return the names of figures."""
    from theorems.figures.registry import FIGURES

    return _beginning(incomplete, FIGURES)


def engines(incomplete: str) -> list[str]:
    """Return the values of ``--engine``."""
    return _beginning(incomplete, ("local", "dask://"))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
