"""What the strategies draw: :func:`draws`."""

from __future__ import annotations

from generators.shares import Drawn, drawn_shares
from theorems.library.table import Table
from theorems.run import verify
from theorems.run.registry.lookup import select_statements

SIZES = ("n", "T", "d")
"""Of keys; what else tells how large data are stands beside the shares."""


def draws(*ids: str, examples: int = 50, seed: int = 0) -> Table[Drawn]:
    """Sizes, and the share of cases with some property, of the cases on which :func:`theorems.verify` tries statements.

    Args:
        ids: statements, or ``path.py:name``; all by default.
        examples: number of cases of each.
        seed: same seed, same cases; those of ``verify`` with that seed.

    Returns:
        A :class:`Drawn` by id: ``sizes`` (smallest, median, largest n, T, d), ``shares`` by property, each with its
        ``count``, ``of`` how many cases to which it applies, and ``value``.

    Raises:
        InvalidInput: an unknown id.

    >>> from theorems import draws
    >>> draws("lemma-5", examples=20)["lemma-5"].shares["n = 1"].value
    1.0
    """
    held = {one.id: drawn_shares(one.id, verify.draw_cases(one, examples, seed)) for one in select_statements(ids)}
    columns = ("statement", *SIZES, "shares")

    def row(id: str, one: Drawn) -> tuple[str, ...]:
        others = [f"{name} {cell}" for name, cell in size_cells(one).items() if name not in SIZES]
        return id, *(size_cells(one).get(name, "") for name in SIZES), ", ".join([*others, *format_shares(one)])

    return Table("What the strategies draw", columns, held, row)


def size_cells(one: Drawn) -> dict[str, str]:
    """Smallest–largest and median size, by name."""
    return {name: f"{low}–{high} ({middle})" for name, (low, middle, high) in one.sizes.items()}


def format_shares(one: Drawn) -> list[str]:
    """The shares that are not zero."""
    return [f"{name} {share}" for name, share in one.shares.items() if share.count]
