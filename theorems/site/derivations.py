"""Modules with derivations, to which docstrings of statements refer, and the texts of these modules."""

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
"""Packages that contain derivations, besides the packages of the papers."""


@dataclass
class Derivation:
    """A module that a statement, or another derivation, refers to.

    Attributes:
        module: the dotted name of the module.
        objects: names of the objects in the module that docstrings refer to.
    """

    module: str
    objects: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the name of the page of the derivation."""
        return self.module.removeprefix(f"{papers()[0].statements}.").replace(".", "-").replace("_", "-")

    @property
    def loaded_module(self) -> ModuleType:
        """Return the module itself."""
        return importlib.import_module(self.module)

    def text(self, name: str = "") -> str:
        """Return the docstring of the module, or of one of its objects."""
        return inspect.getdoc(_object(self.module, name)) or "" if name else inspect.getdoc(self.loaded_module) or ""


@cache
def derivations() -> dict[str, Derivation]:
    """Return every derivation by its module, in the order of the statements that refer to them."""
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
    """Return two docstrings of a statement: of its module, and of its conclusion."""
    statement = statements()[id]
    return inspect.getdoc(importlib.import_module(statement.conclusion.__module__)) or "", statement.text


def references(text: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield (module, object or "") for each reference of a docstring into the :data:`ROOMS`."""
    for reference in REFERENCE.findall(text):
        resolved = resolve(reference, place)
        if resolved:
            yield resolved


def resolve(reference: str, place: str) -> tuple[str, str] | None:
    """Return the module of a reference, and the object in it if it names one; None outside the :data:`ROOMS`.

    Args:
        reference: a dotted name; with a leading dot, as in Sphinx, the end of a dotted name, preferably in the package
            of ``place``.
        place: the module of the docstring.
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
    """Return every module of the :data:`ROOMS`."""
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
