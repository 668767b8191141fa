"""A read-only mapping that shows itself as a table, as text and in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from reference_attention.notebook import html_table

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Table(Mapping[str, T], Generic[T]):
    """Objects by id.

    Attributes:
        caption: what the table is of.
        columns: their names.
        held: the objects.
        row: the cells of one object.
    """

    caption: str
    columns: Sequence[str]
    held: Mapping[str, T]
    row: Callable[[str, T], tuple[str, ...]]

    def __getitem__(self, id: str) -> T:
        return self.held[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells, a tuple per object."""
        return [self.row(id, one) for id, one in self.held.items()]

    def __repr__(self) -> str:
        return align([tuple(self.columns), *self.rows])

    def _repr_html_(self) -> str:
        return html_table(self.caption, self.columns, self.rows)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text, columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
