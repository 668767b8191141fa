"""The function :func:`draws`, which describes the generated cases."""

from __future__ import annotations

from generators.case_statistics import Drawn, drawn_shares
from theorems.library.table_mapping import Table
from theorems.run import verify
from theorems.run.registry.lookup import select_statements

SIZES = ("n", "T", "d")
"""The sizes that have a column of their own in the table; other sizes are listed with the shares."""


def draws(*ids: str, examples: int = 50, seed: int = 0) -> Table[Drawn]:
    """Return sizes and properties of the generated cases on which :func:`theorems.verify` checks statements.

    Args:
        ids: statements, or ``path.py:name``; all by default.
        examples: number of cases of each statement.
        seed: the seed; ``verify`` with this seed checks the same cases.

    Returns:
        A :class:`Drawn` by id, with ``sizes`` (smallest, median and largest n, T, d) and ``shares`` by property. A
        share has the ``count`` of cases with the property, the number ``of`` cases to which the property applies, and
        their ratio ``value``.

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
    """Return smallest, largest and median of each size as text, by the name of the size."""
    return {name: f"{low}–{high} ({middle})" for name, (low, middle, high) in drawn.sizes.items()}


def format_shares(drawn: Drawn) -> list[str]:
    """Return the nonzero shares as text."""
    return [f"{name} {share}" for name, share in drawn.shares.items() if share.count]
