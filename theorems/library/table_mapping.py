"""Read-only mapping that Python and notebooks display as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from reference_attention.html_table import html_table

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Table(Mapping[str, T], Generic[T]):
    """Read-only mapping from ids to objects, displayed as a table.

    Attributes:
        caption: the title of the table.
        columns: the names of the columns.
        objects: the objects by id.
        row: a function of an id and its object that returns the cells of the object's row.
    """

    caption: str
    columns: Sequence[str]
    objects: Mapping[str, T]
    row: Callable[[str, T], tuple[str, ...]]

    def __getitem__(self, id: str) -> T:
        """Return the object with an id."""
        return self.objects[id]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids."""
        return iter(self.objects)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.objects)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the table: a tuple of cells for each object."""
        return [self.row(id, value) for id, value in self.objects.items()]

    def __repr__(self) -> str:
        """Return the table as aligned text, with the names of the columns in the first line."""
        return align([tuple(self.columns), *self.rows])

    def _repr_html_(self) -> str:
        return html_table(self.caption, self.columns, self.rows)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as text, in aligned columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
