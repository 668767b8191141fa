"""What the papers have: every ``@statement`` in their rooms, found where it stands, and what belongs to it."""

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

from attention_conformance.claims.statements import capability_statements
from generators.assumptions import ASSUMPTIONS
from generators.finding import Assumption
from max_margin_theorems.papers import Paper, check_only, paper_at, papers
from theorems.core.definition import Definition
from theorems.core.recorded_files import COUNTEREXAMPLES
from theorems.core.statement import Statement
from theorems.core.tolerances import ROUNDING, TOLERANCES, Reason, Tolerance

Kind = TypeVar("Kind")


def definitions_in(modules: Iterable[ModuleType], kind: type[Kind]) -> Iterator[tuple[str, Kind]]:
    """(module, object) for everything of a kind whose conclusion stands in one of the modules."""
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, kind) and cast(Any, value).conclusion.__module__ == module.__name__:
                yield module.__name__, value


def modules_without() -> Iterator[tuple[Paper, ModuleType]]:
    """(paper, module) for every module with statements that lack one of their assumptions, each once."""
    rooms: dict[str, Paper] = {}
    for paper in papers():
        rooms.setdefault(paper.without, paper)
    return ((paper, module) for room, paper in rooms.items() for module in paper.modules(room))


@cache
def statements() -> dict[str, Statement]:
    """Every statement by id: paper by paper, lemmas, then theorems, each in the paper's order.

    Raises:
        ValueError: two of them have the same id.
        InvalidInput: they are of two packages, or a package cannot be used.
    """
    made: dict[str, Statement] = {}
    by: dict[str, Paper] = {}
    for paper in papers():
        own = _statements_of(paper, by)
        place = _module_order(paper.statements)
        ordered = sorted(own, key=lambda id: (place.get(own[id].conclusion.__module__, 0), *in_order(id)))
        made |= {id: own[id] for id in ordered}
    return made


def _statements_of(paper: Paper, by: dict[str, Paper]) -> dict[str, Statement]:
    own: dict[str, Statement] = {}
    for module, one in definitions_in(paper.modules(paper.statements), Statement):
        for id in (one.id, *one.aliases):
            held = by.get(id)
            if held is not None and held.package == paper.package:
                with paper.blame():
                    raise ValueError(f"statement {id} is there twice; {module} has the second")
            check_only(id, "statements", by, paper)
        own[one.id] = one
    return own


def paper_of(statement: Statement) -> Paper | None:
    """The paper whose room a statement stands in; None of one in somebody's own file, and of a capability."""
    return None if statement.file else paper_at(statement.conclusion.__module__)


def folder_of(statement: Statement, ours: Path = COUNTEREXAMPLES) -> Path:
    """The folder with what was recorded of a statement without its assumptions."""
    paper = paper_of(statement)
    return ours if paper is None or paper.recorded is None else paper.recorded


@cache
def assumptions() -> dict[str, Assumption]:
    """Every assumption by id: the suite's, then those that statements of other packages have of their own.

    Raises:
        InvalidInput: two packages have the same id.
    """
    found, by = dict(ASSUMPTIONS), dict[str, Paper]()
    for statement in statements().values():
        paper = paper_of(statement)
        for id, one in statement.own_assumptions.items():
            if paper is not None:
                check_only(id, "assumptions", by, paper)
            found.setdefault(id, one)
    return found


@cache
def definitions() -> dict[str, Definition]:
    """The definitions of the papers, by id.

    Raises:
        InvalidInput: two packages have the same id.
    """
    found, by = dict[str, Definition](), dict[str, Paper]()
    for paper in papers():
        for id, one in paper.mapping_at(paper.definitions).items():
            check_only(id, "definitions", by, paper)
            found[id] = one
    return found


def _module_order(room: str) -> dict[str, int]:
    """The modules that the docstring of a room names, by their place in it."""
    package = importlib.import_module(room)
    return {f"{room}.{name}": k for k, name in enumerate(re.findall(r"`(\w+)`", package.__doc__ or ""))}


def capabilities() -> dict[str, Statement]:
    """What is claimed of attention kernels, by id: in the order of the table."""
    return capability_statements()


def in_order(id: str) -> tuple[int, int, str]:
    """Sorts the ids of a paper: lemmas, theorems, the rest."""
    kind, _, number = id.partition("-")
    kinds = ("lemma", "theorem")
    return (kinds.index(kind) if kind in kinds else len(kinds), int(number) if number.isdigit() else 0, id)


def on_a_kernel() -> list[str]:
    """The ids of the statements of the papers that call an attention kernel, in the order of the suite."""
    return [one.id for one in statements().values() if one.kernel is not None and one.kernel.called]


def kernel_statement_ids() -> list[str]:
    """The ids of all that is claimed of an attention kernel: what it is able to do, and the statements that call it."""
    return [*capabilities(), *on_a_kernel()]


def tolerances() -> dict[str, Tolerance]:
    """Every tolerance that a module of the suite declares, by key: exact, rounding, then by name."""
    statements()
    for _ in modules_without():
        pass
    return {key: TOLERANCES[key] for key in sorted(TOLERANCES, key=lambda key: (key not in ("exact", "rounding"), key))}


def tolerances_of(statement: Statement) -> dict[str, Tolerance]:
    """The tolerances that the module of a statement, or one that it takes its claims from, declares or names."""
    found: dict[str, Tolerance] = {}
    seen: set[str] = set()
    waiting = [statement.conclusion.__module__]
    tops = ("theorems.", f"{waiting[0].partition('.')[0]}.")
    while waiting:
        module = waiting.pop(0)
        if module in seen or module.startswith("theorems.core.") or module == "theorems.api":
            continue
        seen.add(module)
        if module == "theorems.bounded":
            # A claim on numbers that carry their rounding names no tolerance.
            found[str(ROUNDING)] = ROUNDING.tolerance
            continue
        loaded = importlib.import_module(module)
        found |= {str(one): one.tolerance for one in vars(loaded).values() if isinstance(one, Reason)}
        imports = (node for node in ast.walk(ast.parse(inspect.getsource(loaded))) if isinstance(node, ast.ImportFrom))
        waiting += [node.module for node in imports if node.module and node.module.startswith(tops)]
    return dict(sorted(found.items()))
