"""Output of ``theorems list`` and ``show``."""

from __future__ import annotations

import inspect
from typing import Any

from rich.table import Table
from rich.text import Text

from reference_attention.errors import InvalidInput, suggest
from theorems.command.hunting import table_and_report
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
from theorems.run.tables import column_table, console, markdown_table


def print_list(options: ListOptions) -> int:
    """Print statements, capabilities of attention kernels, definitions and assumptions, or what the options ask for.

    Raises:
        InvalidInput: ids with whole tables, or unknown ids.
    """
    if options.counterexamples:
        return table_and_report(options)
    if options.ids and not options.drawn:
        raise InvalidInput("list: ids go with --drawn or --counterexamples; `theorems show` describes a statement.")
    tables = _tables(options)
    if options.markdown:
        print("\n\n".join(markdown_table(table.columns, table.rows) for table in tables))
    else:
        for table in tables:
            console().print(column_table(*table.columns, rows=table.rows, whole=table.columns[:1]))
    return Exit.UPHELD


def _tables(options: ListOptions) -> list[Objects[Any]]:
    if options.drawn:
        return [draws(*(options.ids or ()), examples=options.examples)]
    if options.data:
        return [catalogue.datasets()]
    assumed = catalogue.assumptions()
    return [assumed] if options.assumptions else [_statements(), _capabilities(), _definitions(), assumed]


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


def claims_table(statement: Statement) -> Table:
    """Return a table of the claims that a statement may make, and when."""
    rows = [
        (name, when, *([statement.part_of(name).words] if statement.says_whose else []))
        for name, when in statement.claims.items()
    ]
    columns = ("claim", "made", *(["is"] if statement.says_whose else []))
    return column_table(*columns, rows=rows, whole=("claim",))


def tolerances_table(used: dict[str, Tolerance]) -> Table:
    """Return a table of tolerances: key, formula, reason."""
    rows = [(key, tolerance.formula, tolerance.reason) for key, tolerance in used.items()]
    return column_table("tolerance", "formula", "reason", rows=rows, whole=("tolerance",))


def show(options: ShowOptions) -> None:
    """Print a statement, a definition or an assumption in full, or all tolerances.

    Raises:
        InvalidInput: no such id, or both or neither were asked for.
    """
    id = options.id
    if (id is None) is not options.tolerances:
        raise InvalidInput("show: give an id, or --tolerances for every tolerance.")
    if id is None:
        console().print(tolerances_table(tolerances()))
        return
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
        tables.append(tolerances_table(tolerances_of(statement)))
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
            f"id: {id!r} is not a statement, a definition or an assumption.{near} `theorems list` shows all."
        ) from None
