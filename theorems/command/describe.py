"""What ``theorems list``, ``show`` and ``tolerances`` print."""

from __future__ import annotations

import inspect
from typing import Any

from rich.table import Table
from rich.text import Text

from reference_attention.errors import InvalidInput, suggest
from theorems.command.subcommands import ListOptions, TolerancesOptions
from theorems.core.statement import Statement
from theorems.core.tolerances import Tolerance
from theorems.library import catalogue
from theorems.library.table import Table as Objects
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
from theorems.run.tables import column_table, console, markdown_table

TOLERANCE = ("tolerance", "formula", "reason")


def print_list(options: ListOptions) -> None:
    """Statements, what attention kernels may be able to do, definitions and assumptions; or some of them."""
    if options.data:
        tables = [_terminal_table(catalogue.datasets())]
    else:
        tables = [] if options.assumptions else [statements_table(), capabilities_table(), definitions_table()]
        tables.append(_terminal_table(catalogue.assumptions()))
    for one in tables:
        console().print(one)


def _terminal_table(of: Objects[Any]) -> Table:
    return column_table(*of.columns, rows=of.rows, whole=of.columns[:1])


def statements_table() -> Table:
    """Every statement: id, title, source, assumptions."""
    rows = [
        (" = ".join((one.id, *one.aliases)), one.title, one.source, ", ".join(one.assumptions))
        for one in statements().values()
    ]
    return column_table("statement", "says", "source", "assumptions", rows=rows)


def capabilities_table() -> Table:
    """What attention kernels may be able to do: id, title, what is checked."""
    rows = [(one.id, one.title, one.kernel.says if one.kernel else "") for one in capabilities().values()]
    return column_table("capability", "says", "of a kernel (--attention)", rows=rows, whole=("capability",))


def definitions_table() -> Table:
    """Every definition: id, title, the objects that embody it."""
    rows = [(one.id, one.title, ", ".join(one.objects)) for one in definitions().values()]
    return column_table("definition", "says", "in code", rows=rows, whole=("definition",))


def claims_table(statement: Statement) -> Table:
    """The claims that a statement may make, and when."""
    rows = [
        (name, when, *([statement.part_of(name).words] if statement.says_whose else []))
        for name, when in statement.claims.items()
    ]
    columns = ("claim", "made", *(["is"] if statement.says_whose else []))
    return column_table(*columns, rows=rows, whole=("claim",))


def tolerance_rows(used: dict[str, Tolerance]) -> list[tuple[str, str, str]]:
    """Key, formula, reason."""
    return [(key, one.formula, one.reason) for key, one in used.items()]


def tolerances_table(used: dict[str, Tolerance]) -> Table:
    """The same as a table."""
    return column_table(*TOLERANCE, rows=tolerance_rows(used), whole=TOLERANCE[:1])


def tolerances_markdown() -> str:
    """All of them for a document."""
    return markdown_table(TOLERANCE, [(f"`{key}`", *cells) for key, *cells in tolerance_rows(tolerances())])


def print_tolerances(options: TolerancesOptions) -> None:
    """All of them."""
    if options.markdown:
        print(tolerances_markdown())
    else:
        console().print(tolerances_table(tolerances()))


def show(id: str) -> None:
    """A statement, a definition or an assumption in full.

    Raises:
        InvalidInput: no such id.
    """
    tables: list[Table] = []
    if id in assumptions():
        assumption = assumptions()[id]
        title, source = f"{id}: {assumption.title}", assumption.source
        doc = inspect.getdoc(assumption.check)
        users = ", ".join(one.id for one in statements().values() if id in one.assumptions) or "no statement"
        text = f"{doc}\n\nAssumed by: {users}" if doc else f"Assumed by: {users}"
    elif id in definitions():
        definition = definitions()[id]
        title, source = f"{id}: {definition.title}", definition.source
        text = f"{definition.text}\n\nIn code: {', '.join(definition.objects)}"
    else:
        found = _statement(id)
        title, source = f"{' = '.join((found.id, *found.aliases))}: {found.title}", found.source
        paper = paper_of(found)
        if paper is not None and paper.package:
            source += f"; {paper.title} ({paper.source}), of {paper.place}"
        text = inspect.cleandoc(found.text) + "\n"
        assumed = map(found.assumption, found.assumptions)
        rows = [(name, one.title, one.source) for name, one in zip(found.assumptions, assumed, strict=True)]
        tables.append(column_table("assumes", "that is", "source", rows=rows, whole=("assumes",)))
        tables += [claims_table(found)] if found.claims else []
        tables.append(tolerances_table(tolerances_of(found)))
    out = console()
    out.print(Text(title, "bold"), soft_wrap=True)
    out.print(Text(f"Source: {source}\n\n{text}"), soft_wrap=True)
    for one in tables:
        out.print(one)


def _statement(id: str) -> Statement:
    try:
        return statement_named(id)
    except InvalidInput:
        if is_in_a_file(id):
            raise
        near = suggest(id, [*statements(), *capabilities(), *definitions(), *assumptions()])
        raise InvalidInput(
            f"id: {id!r} is not a statement, a definition or an assumption.{near} `theorems list` shows all."
        ) from None
