"""The function :func:`draws`, which describes the generated cases."""

from __future__ import annotations

from generators.case_statistics import Drawn, drawn_shares
from theorems.library.table_mapping import Table
from theorems.run import verify
from theorems.run.registry.lookup import select_statements

SIZES = ("n", "T", "d")
"""The sizes of a case (n inputs, T tokens per input, d dimensions) with a column of their own; other sizes are listed
with the shares."""


def draws(*ids: str, examples: int = 50, seed: int = 0) -> Table[Drawn]:
    """Return the sizes and properties of the generated cases on which :func:`theorems.verify` checks statements.

    Args:
        ids: ids of statements, or ``path.py:name`` for a statement in your file; all statements by default.
        examples: the number of generated cases per statement.
        seed: the seed; ``verify`` with this seed checks the same cases.

    Returns:
        A table of :class:`Drawn` by the statement's id. A Drawn has ``sizes`` (smallest, median and largest n, T, d)
        and ``shares`` by property. A share has the number ``count`` of cases with the property, the number ``of`` of
        cases to which the property applies, and the ratio ``value`` of these numbers.

    Raises:
        InvalidInput: an id is unknown.

    >>> from theorems import draws
    >>> draws("lemma-5", examples=20)["lemma-5"].shares["n = 1"].value
    1.0
    """
    by_id = {
        statement.id: drawn_shares(statement.id, verify.draw_cases(statement, examples, seed))
        for statement in select_statements(ids)
    }
    columns = ("statement", *SIZES, "shares")

    def row(id: str, drawn: Drawn) -> tuple[str, ...]:
        others = [f"{name} {cell}" for name, cell in size_cells(drawn).items() if name not in SIZES]
        return id, *(size_cells(drawn).get(name, "") for name in SIZES), ", ".join([*others, *format_shares(drawn)])

    return Table("What the strategies draw", columns, by_id, row)


def size_cells(drawn: Drawn) -> dict[str, str]:
    """Return the smallest, largest and median value of each size as text, by the name of the size."""
    return {name: f"{low}–{high} ({middle})" for name, (low, middle, high) in drawn.sizes.items()}


def format_shares(drawn: Drawn) -> list[str]:
    """Return as text, for each property that some case has, the share of the cases with this property."""
    return [f"{name} {share}" for name, share in drawn.shares.items() if share.count]
