"""The statements of the suite: every ``@statement`` in the rooms of the papers, found where it stands."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, TypeVar, cast

from theorems.capabilities.statements import capability_statements
from theorems.core.statement import Statement
from theorems.core.tolerances import ROUNDING, TOLERANCES, Reason, Tolerance

Kind = TypeVar("Kind")

PAPERS = ("theorems.token_selection", "theorems.transformers_as_svms", "theorems.steepest_descent")
"""A room for each paper; every module in it is read."""


def modules_of(room: str) -> Iterator[ModuleType]:
    """Every module of a package and of the packages in it, imported."""
    package = importlib.import_module(room)
    for found in pkgutil.walk_packages(package.__path__, f"{room}."):
        yield importlib.import_module(found.name)


def definitions_in(room: str, kind: type[Kind]) -> Iterator[tuple[str, Kind]]:
    """(module, object) for everything of a kind whose conclusion stands in a module of the room."""
    for module in modules_of(room):
        for value in vars(module).values():
            if isinstance(value, kind) and cast(Any, value).conclusion.__module__ == module.__name__:
                yield module.__name__, value


@cache
def statements() -> dict[str, Statement]:
    """Every statement by id: paper by paper, lemmas, then theorems, each in the paper's order.

    Raises:
        ValueError: two of them have the same id.
    """
    made: dict[str, Statement] = {}
    taken: set[str] = set()
    for paper in PAPERS:
        own: dict[str, Statement] = {}
        for module, one in definitions_in(paper, Statement):
            for id in (one.id, *one.aliases):
                if id in taken:
                    raise ValueError(f"statement {id} is there twice; {module} has the second")
                taken.add(id)
            own[one.id] = one
        place = _module_order(paper)
        ordered = sorted(own, key=lambda id: (place.get(own[id].conclusion.__module__, 0), *in_order(id)))
        made |= {id: own[id] for id in ordered}
    return made


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
    for _ in modules_of("theorems.without"):
        pass
    return {key: TOLERANCES[key] for key in sorted(TOLERANCES, key=lambda key: (key not in ("exact", "rounding"), key))}


def tolerances_of(statement: Statement) -> dict[str, Tolerance]:
    """The tolerances that the module of a statement, or one that it takes its claims from, declares or names."""
    found: dict[str, Tolerance] = {}
    seen: set[str] = set()
    waiting = [statement.conclusion.__module__]
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
        waiting += [node.module for node in imports if (node.module or "").startswith("theorems.") and node.module]
    return dict(sorted(found.items()))
