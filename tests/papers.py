"""Modules of one name in the folders with the tests of several papers."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from max_margin_theorems.papers import papers


def modules_of_papers(name: str) -> list[ModuleType]:
    """Return the modules ``name`` in the folders with the tests of this project's papers, where they exist."""
    places = [f"tests.{paper.statements}.{name}" for paper in papers() if not paper.package]
    return [importlib.import_module(place) for place in places if find_spec(place)]
