"""What ``theorems list``, ``show`` and ``tolerances`` print."""

from __future__ import annotations

import inspect

from rich.console import Console
from rich.table import Table
from rich.text import Text

from generators.assumptions import ASSUMPTIONS, Assumption
from reference_attention.errors import InvalidInput
from theorems.core.statement import Statement
from theorems.core.tolerances import Tolerance
from theorems.run.registry.definitions import DEFINITIONS
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import capabilities, statements, tolerances, tolerances_of
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.tables import column_table as table


def statements_table() -> Table:
    """Every statement: id, title, source, assumptions."""
    made = table("statement", "says", "source", "assumptions")
    for one in statements().values():
        ids = " = ".join((one.id, *one.aliases))
        made.add_row(Text(ids), one.title, one.source, ", ".join(one.assumptions))
    return made


def capabilities_table() -> Table:
    """What attention kernels may be able to do: id, title, what is checked."""
    made = table("capability", "says", "of a kernel (--attention)")
    for one in capabilities().values():
        made.add_row(Text(one.id, no_wrap=True), one.title, one.kernel.says if one.kernel else "")
    return made


def assumptions() -> Table:
    """Every assumption: id, title, source."""
    made = table("assumption", "says", "source")
    for one in ASSUMPTIONS.values():
        made.add_row(Text(one.id, no_wrap=True), one.title, one.source)
    return made


def datasets() -> Table:
    """Every named dataset: name, what it is."""
    from generators.datasets import DATASETS

    made = table("dataset", "is")
    for name, build in DATASETS.items():
        made.add_row(Text(name, no_wrap=True), (inspect.getdoc(build) or "").partition("\n")[0])
    return made


def claims_table(statement: Statement) -> Table:
    """The claims that a statement may make, and when."""
    made = table("claim", "made", *(["is"] if statement.says_whose else []))
    for name, when in statement.claims.items():
        part = [statement.part_of(name).words] if statement.says_whose else []
        made.add_row(Text(name, no_wrap=True), when, *part)
    return made


def tolerances_table(used: dict[str, Tolerance] | None = None) -> Table:
    """Key, formula, reason of all tolerances, or of some."""
    made = table("tolerance", "formula", "reason")
    for key, one in (tolerances() if used is None else used).items():
        made.add_row(Text(key, no_wrap=True), one.formula, one.reason)
    return made


def tolerances_markdown() -> str:
    """The same table for a document."""
    rows = [("tolerance", "formula", "reason"), ("---", "---", "---")]
    rows += [(f"`{key}`", one.formula, one.reason) for key, one in tolerances().items()]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def definitions() -> Table:
    """Every definition: id, title, the objects that embody it."""
    made = table("definition", "says", "in code")
    for one in DEFINITIONS.values():
        made.add_row(Text(one.id, no_wrap=True), one.title, ", ".join(one.objects))
    return made


def show(out: Console, id: str) -> None:
    """A statement, a definition or an assumption in full.

    Raises:
        InvalidInput: no such id.
    """
    if id in ASSUMPTIONS:
        _show_assumption(out, ASSUMPTIONS[id])
        return
    if id in DEFINITIONS:
        definition = DEFINITIONS[id]
        out.print(Text(f"{definition.id}: {definition.title}", "bold"), soft_wrap=True)
        out.print(
            Text(f"Source: {definition.source}\n\n{definition.text}\n\nIn code: {', '.join(definition.objects)}"),
            soft_wrap=True,
        )
        return
    try:
        found = statement_named(id)
    except InvalidInput as error:
        if is_in_a_file(id):
            raise
        raise InvalidInput(
            f"{str(error)[:-1]}; definitions are {', '.join(DEFINITIONS)}; assumptions are {', '.join(ASSUMPTIONS)}."
        ) from None
    out.print(Text(f"{' = '.join((found.id, *found.aliases))}: {found.title}", "bold"), soft_wrap=True)
    out.print(Text(f"Source: {found.source}\n"), soft_wrap=True)
    out.print(Text(inspect.cleandoc(found.text) + "\n"), soft_wrap=True)
    made = table("assumes", "that is", "source")
    for name in found.assumptions:
        one = found.assumption(name)
        made.add_row(Text(name, no_wrap=True), one.title, one.source)
    out.print(made)
    if found.claims:
        out.print(claims_table(found))
    out.print(tolerances_table(tolerances_of(found)))


def _show_assumption(out: Console, assumption: Assumption) -> None:
    out.print(Text(f"{assumption.id}: {assumption.title}", "bold"), soft_wrap=True)
    out.print(Text(f"Source: {assumption.source}"), soft_wrap=True)
    doc = inspect.getdoc(assumption.check)
    if doc:
        out.print(Text(f"\n{doc}"), soft_wrap=True)
    users = [one.id for one in statements().values() if assumption.id in one.assumptions]
    out.print(Text(f"\nAssumed by: {', '.join(users) or 'no statement'}"), soft_wrap=True)
