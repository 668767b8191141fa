"""The suite: every ``@statement`` of the papers, and the assumptions, definitions and tolerances in use."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from generators.assumptions import ASSUMPTIONS
from generators.finding import Assumption
from max_margin_theorems.extensions import extensions, object_at
from max_margin_theorems.papers import Paper, check_only, paper_at, papers
from theorems.core.definition import Definition
from theorems.core.recorded_files import COUNTEREXAMPLES
from theorems.core.statement import Statement
from theorems.core.tolerances import ROUNDING, TOLERANCES, Reason, Tolerance

Kind = TypeVar("Kind")


def definitions_in(modules: Iterable[ModuleType], kind: type[Kind]) -> Iterator[tuple[str, Kind]]:
    """Yield (module name, object) for each object of type ``kind`` whose function ``conclusion`` is in that module."""
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, kind) and cast(Any, value).conclusion.__module__ == module.__name__:
                yield module.__name__, value


def modules_without() -> Iterator[tuple[Paper, ModuleType]]:
    """Return (paper, module) for every module with statements that lack one assumption, each module once."""
    rooms: dict[str, Paper] = {}
    for paper in papers():
        rooms.setdefault(paper.without, paper)
    return ((paper, module) for room, paper in rooms.items() for module in paper.modules(room))


@cache
def statements() -> dict[str, Statement]:
    """Return every statement of the papers by id, paper by paper.

    Within a paper the statements come chapter by chapter, lemmas before theorems.

    Raises:
        ValueError: two statements of one package have the same id.
        InvalidInput: statements of two packages have the same id, or a package cannot be used.
    """
    by_id: dict[str, Statement] = {}
    by: dict[str, Paper] = {}
    for paper in papers():
        of_paper = _statements_of(paper, by)
        place = module_order(paper.statements)
        ordered = sorted(of_paper, key=lambda id: (place.get(of_paper[id].conclusion.__module__, 0), *in_order(id)))
        by_id |= {id: of_paper[id] for id in ordered}
    return by_id


def _statements_of(paper: Paper, by: dict[str, Paper]) -> dict[str, Statement]:
    by_id: dict[str, Statement] = {}
    for module, statement in definitions_in(paper.modules(paper.statements), Statement):
        for id in (statement.id, *statement.aliases):
            owner = by.get(id)
            if owner is not None and owner.package == paper.package:
                with paper.blame():
                    raise ValueError(f"statement {id} is defined twice, the second time in {module}")
            check_only(id, "statements", by, paper)
        by_id[statement.id] = statement
    return by_id


def paper_of(statement: Statement) -> Paper | None:
    """Return the paper whose package defines a statement; None for a user's file, and for a capability of kernels."""
    return None if statement.file else paper_at(statement.conclusion.__module__)


def folder_of(statement: Statement, ours: Path = COUNTEREXAMPLES) -> Path:
    """Return the folder with the recorded counterexamples to a statement that lacks one of its assumptions.

    The folder is ``ours``, unless the package of the statement's paper has a folder of its own.
    """
    paper = paper_of(statement)
    return ours if paper is None or paper.recorded is None else paper.recorded


@cache
def assumptions() -> dict[str, Assumption]:
    """Return every assumption by id: the suite's, then the assumptions that statements of other packages define.

    Raises:
        InvalidInput: assumptions of two packages have the same id.
    """
    by_id, by = dict(ASSUMPTIONS), dict[str, Paper]()
    for statement in statements().values():
        paper = paper_of(statement)
        for id, assumption in statement.own_assumptions.items():
            if paper is not None and (id not in by_id or _predicate(by_id[id]) is not _predicate(assumption)):
                check_only(id, "assumptions", by, paper)
            by_id.setdefault(id, assumption)
    return by_id


def _predicate(assumption: Assumption) -> object:
    """Return an assumption's undecorated predicate; papers that share the assumption share this object."""
    return inspect.unwrap(assumption.check)


@cache
def definitions() -> dict[str, Definition]:
    """Return the definitions (terms that the papers define) by id.

    Raises:
        InvalidInput: definitions of two packages have the same id.
    """
    by_id, by = dict[str, Definition](), dict[str, Paper]()
    for paper in papers():
        for id, definition in paper.mapping_at(paper.definitions).items():
            check_only(id, "definitions", by, paper)
            by_id[id] = definition
    return by_id


def module_order(room: str) -> dict[str, int]:
    """Return the position of each module in the order in which the package's docstring names the modules."""
    package = importlib.import_module(room)
    return {f"{room}.{name}": k for k, name in enumerate(re.findall(r"`(\w+)`", package.__doc__ or ""))}


@cache
def capabilities() -> dict[str, Statement]:
    """Return the capabilities of attention kernels (statements about single calls), by id.

    They are in the order of the extension that brings them.
    """
    places = [extension.statements for extension in extensions() if extension.statements]
    return {id: statement for place in places for id, statement in object_at(place)().items()}


def in_order(id: str) -> tuple[int, int, str]:
    """Return the sorting key of an id within its paper: lemmas by number, then theorems by number, then the others."""
    kind, _, number = id.partition("-")
    kinds = ("lemma", "theorem")
    return (kinds.index(kind) if kind in kinds else len(kinds), int(number) if number.isdigit() else 0, id)


def on_a_kernel() -> list[str]:
    """Return the ids of the papers' statements that call an attention kernel when checked, in the suite's order."""
    return [
        statement.id for statement in statements().values() if statement.kernel is not None and statement.kernel.called
    ]


def kernel_statement_ids() -> list[str]:
    """Return the ids of all statements that call an attention kernel: capabilities, then the papers' statements."""
    return [*capabilities(), *on_a_kernel()]


def tolerances() -> dict[str, Tolerance]:
    """Return every declared tolerance of the suite by key: "exact" and "rounding" first, the others by name."""
    statements()
    for _ in modules_without():
        pass
    return {key: TOLERANCES[key] for key in sorted(TOLERANCES, key=lambda key: (key not in ("exact", "rounding"), key))}


def tolerances_of(statement: Statement) -> dict[str, Tolerance]:
    """Return the tolerances, by key, that a statement's module or a module it imports declares or names."""
    by_key: dict[str, Tolerance] = {}
    visited: set[str] = set()
    waiting = [statement.conclusion.__module__]
    tops = ("theorems.", f"{waiting[0].partition('.')[0]}.")
    while waiting:
        module = waiting.pop(0)
        if module in visited or module.startswith("theorems.core.") or module == "theorems.api":
            continue
        visited.add(module)
        if module == "theorems.bounded":
            # Claims on arrays that carry rounding bounds use the tolerance "rounding" without naming it.
            by_key[str(ROUNDING)] = ROUNDING.tolerance
            continue
        loaded = importlib.import_module(module)
        by_key |= {str(reason): reason.tolerance for reason in vars(loaded).values() if isinstance(reason, Reason)}
        imports = (node for node in ast.walk(ast.parse(inspect.getsource(loaded))) if isinstance(node, ast.ImportFrom))
        waiting += [node.module for node in imports if node.module and node.module.startswith(tops)]
    return dict(sorted(by_key.items()))
