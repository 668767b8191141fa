"""Modules with derivations: those to which docstrings of statements refer; and the docstrings of these modules."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType

from max_margin_theorems.papers import papers
from theorems.run.registry.suite import statements

REFERENCE = re.compile(r":\w+:`~?([^`]+)`")
ROOMS = ("theorems.curves", "theorems.rounding", "reference_attention", "generators")
"""Packages that contain derivations, in addition to the packages of the papers."""


@dataclass
class Derivation:
    """Module to whose docstrings the docstring of a statement, or of another derivation, refers.

    Attributes:
        module: the dotted name of the module.
        objects: names of the objects in the module to which docstrings refer.
    """

    module: str
    objects: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the name of the derivation's page on the site."""
        return self.module.removeprefix(f"{papers()[0].statements}.").replace(".", "-").replace("_", "-")

    @property
    def loaded_module(self) -> ModuleType:
        """Return the derivation's module itself, imported if necessary."""
        return importlib.import_module(self.module)

    def text(self, name: str = "") -> str:
        """Return the docstring of the object ``name`` in the module; without a name, the docstring of the module."""
        return inspect.getdoc(_object(self.module, name)) or "" if name else inspect.getdoc(self.loaded_module) or ""


@cache
def derivations() -> dict[str, Derivation]:
    """Return every derivation by the name of its module, in the order of the statements that refer to the modules."""
    by_module: dict[str, Derivation] = {}
    conclusions = {statement.conclusion.__module__ for statement in statements().values()}
    waiting = [
        (statement.conclusion.__module__, text)
        for statement in statements().values()
        for text in texts_of(statement.id)
    ]
    while waiting:
        place, text = waiting.pop(0)
        for module, name in references(text, place):
            if module in conclusions:
                continue
            if module not in by_module:
                by_module[module] = Derivation(module)
                waiting.append((module, by_module[module].text()))
            if name and name not in by_module[module].objects:
                by_module[module].objects.append(name)
                waiting.append((module, by_module[module].text(name)))
    return by_module


def texts_of(id: str) -> tuple[str, str]:
    """Return two docstrings about a statement: of its module, and of the function that is its conclusion."""
    statement = statements()[id]
    return inspect.getdoc(importlib.import_module(statement.conclusion.__module__)) or "", statement.text


def references(text: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield (module, object or "") for each reference in a docstring to a module with derivations.

    These modules are in :data:`ROOMS` and in the papers' packages.
    """
    for reference in REFERENCE.findall(text):
        resolved = resolve(reference, place)
        if resolved:
            yield resolved


def resolve(reference: str, place: str) -> tuple[str, str] | None:
    """Return the module that a reference names, and the object in it or ""; None for a module without derivations.

    Args:
        reference: a dotted name; with a leading dot, as in Sphinx, the end of a dotted name, which is looked up first
            in the package of ``place``.
        place: the module of the docstring with the reference.
    """
    parts = reference.lstrip(".").split(".")
    for length in range(len(parts), 0, -1):
        tail, name = ".".join(parts[:length]), ".".join(parts[length:])
        ends = [
            module
            for module in _modules()
            if module == tail or (reference.startswith(".") and module.endswith(f".{tail}"))
        ]
        if ends:
            near = [module for module in ends if module.rpartition(".")[0] == place.rpartition(".")[0]]
            return (near or ends)[0], name
    return (place, reference) if place in _modules() and _object(place, reference) is not None else None


def _object(module: str, name: str) -> object:
    value: object = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


@cache
def _modules() -> tuple[str, ...]:
    """Return the names of all modules in :data:`ROOMS` and in the packages of the papers."""
    rooms = {room: importlib.import_module(room) for room in (*(paper.statements for paper in papers()), *ROOMS)}
    return tuple(
        name
        for room, top in rooms.items()
        for name in (
            [module.name for module in pkgutil.walk_packages(top.__path__, f"{room}.")]
            if hasattr(top, "__path__")
            else [room]
        )
    )
