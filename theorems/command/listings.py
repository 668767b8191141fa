"""The subcommands ``theorems list`` (tables of the suite's objects) and ``theorems show`` (one object in full)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from reference_attention.errors import InvalidInput, suggest
from theorems.command.completion import TABLES
from theorems.command.counterexamples import table_and_report
from theorems.command.subcommands import ListOptions, ShowOptions
from theorems.core.definition import Definition
from theorems.core.exit_code import Exit
from theorems.core.statement import Statement
from theorems.core.tolerances import Tolerance
from theorems.library import catalogue
from theorems.library.draws import draws
from theorems.library.table_mapping import Table as Objects
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import (
    assumptions,
    capabilities,
    definitions,
    paper_of,
    statements,
    tolerances,
    tolerances_of,
)
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.tables import column_table, console


def print_list(options: ListOptions) -> int:
    """Print the requested table; by default statements, capabilities of kernels, definitions and assumptions.

    Raises:
        InvalidInput: the table is unknown, ids are given for a table that takes none, or an id is unknown.
    """
    name, *ids = options.what or ("",)
    if name and name not in TABLES:
        raise InvalidInput(
            f"list: {name!r} is not a table; give one of {', '.join(TABLES)}. `theorems show ID` describes a statement."
        )
    if ids and name not in ("drawn", "counterexamples"):
        raise InvalidInput(f"list: {name} takes no ids; only drawn and counterexamples do.")
    if name == "counterexamples":
        return table_and_report(ids)
    for table in _tables(name, ids):
        console().print(_printed(table))
    return Exit.UPHELD


def _tables(name: str, ids: Sequence[str]) -> list[Objects[Any]]:
    match name:
        case "drawn":
            return [draws(*ids)]
        case "data":
            return [catalogue.datasets()]
        case "tolerances":
            return [_tolerances(tolerances())]
        case "assumptions":
            return [catalogue.assumptions()]
    return [_statements(), _capabilities(), _definitions(), catalogue.assumptions()]


def _statements() -> Objects[Statement]:
    return Objects(
        "Statements",
        ("statement", "says", "source", "assumptions"),
        statements(),
        lambda id, statement: (
            " = ".join((id, *statement.aliases)),
            statement.title,
            statement.source,
            ", ".join(statement.assumptions),
        ),
    )


def _capabilities() -> Objects[Statement]:
    columns = ("capability", "says", "of a kernel (--attention)")
    return Objects(
        "Capabilities",
        columns,
        capabilities(),
        lambda id, statement: (id, statement.title, statement.kernel.says if statement.kernel else ""),
    )


def _definitions() -> Objects[Definition]:
    columns = ("definition", "says", "in code")
    return Objects(
        "Definitions",
        columns,
        definitions(),
        lambda id, definition: (id, definition.title, ", ".join(definition.objects)),
    )


def _tolerances(used: Mapping[str, Tolerance]) -> Objects[Tolerance]:
    return Objects(
        "Tolerances",
        ("tolerance", "formula", "reason"),
        used,
        lambda key, tolerance: (key, tolerance.formula, tolerance.reason),
    )


def _printed(table: Objects[Any]) -> Table:
    return column_table(*table.columns, rows=table.rows, whole=table.columns[:1])


def claims_table(statement: Statement) -> Table:
    """Return a table of the claims of a statement, each with the cases on which it is made."""
    rows = [
        (name, when, *([statement.part_of(name).words] if statement.says_whose else []))
        for name, when in statement.claims.items()
    ]
    columns = ("claim", "made", *(["is"] if statement.says_whose else []))
    return column_table(*columns, rows=rows, whole=("claim",))


def show(options: ShowOptions) -> None:
    """Print a statement, a definition or an assumption in full.

    Raises:
        InvalidInput: the id is unknown.
    """
    id = options.id
    tables: list[Table] = []
    if id in assumptions():
        assumption = assumptions()[id]
        title, source = f"{id}: {assumption.title}", assumption.source
        doc = inspect.getdoc(assumption.check)
        users = (
            ", ".join(statement.id for statement in statements().values() if id in statement.assumptions)
            or "no statement"
        )
        text = f"{doc}\n\nAssumed by: {users}" if doc else f"Assumed by: {users}"
    elif id in definitions():
        definition = definitions()[id]
        title, source = f"{id}: {definition.title}", definition.source
        text = f"{definition.text}\n\nIn code: {', '.join(definition.objects)}"
    else:
        statement = _statement(id)
        title, source = f"{' = '.join((statement.id, *statement.aliases))}: {statement.title}", statement.source
        paper = paper_of(statement)
        if paper is not None and paper.package:
            source += f"; {paper.title} ({paper.source}), of {paper.place}"
        text = inspect.cleandoc(statement.text) + "\n"
        assumed = map(statement.assumption, statement.assumptions)
        rows = [
            (name, assumption.title, assumption.source)
            for name, assumption in zip(statement.assumptions, assumed, strict=True)
        ]
        tables.append(column_table("assumes", "that is", "source", rows=rows, whole=("assumes",)))
        tables += [claims_table(statement)] if statement.claims else []
        tables.append(_printed(_tolerances(tolerances_of(statement))))
    out = console()
    out.print(Text(title, "bold"), soft_wrap=True)
    out.print(Text(f"Source: {source}\n\n{text}"), soft_wrap=True)
    for table in tables:
        out.print(table)


def _statement(id: str) -> Statement:
    try:
        return statement_named(id)
    except InvalidInput:
        if is_in_a_file(id):
            raise
        near = suggest(id, [*statements(), *capabilities(), *definitions(), *assumptions()])
        raise InvalidInput(
            f"{id!r} is not the id of a statement, a definition or an assumption.{near} `theorems list` shows all."
        ) from None
