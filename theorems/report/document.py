"""A document as a list of blocks, the same for Markdown and HTML.

All texts are plain; whoever renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Code(str):
    """A name, set as code."""


class Reference(str):
    """The name of something that has a :class:`Heading` with that ``name`` further down; set as code."""


@dataclass(frozen=True)
class Link:
    """A text that leads to a file beside the document."""

    text: str
    target: str


@dataclass(frozen=True)
class Share:
    """A share between 0 and 1, shown as a percentage with a bar; more than 1 is too much."""

    value: float

    @property
    def text(self) -> str:
        """Return the share as a percentage."""
        return f"{self.value:.0%}" if self.value < 10 else "over 1000%"


Text = str | Link | Share


@dataclass(frozen=True)
class Heading:
    """A heading; ``level`` 1 is the document's own; a :class:`Reference` refers to it by its ``name``."""

    level: int
    text: str
    name: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Texts one after the other; ``lead`` marks the sentence that a reader needs first."""

    parts: tuple[Text, ...]
    lead: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as there are columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True)
class Listing:
    """Text to copy, as it is; ``language`` names its language, if it has one."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class Picture:
    """SVG elements side by side, with a caption in words, which stands alone where no picture can be."""

    images: tuple[str, ...]
    caption: str


@dataclass(frozen=True)
class Heat:
    """A cell of a :class:`HeatMap`: its text, and the shade from 0 to 4 that says the same."""

    text: str
    shade: int


@dataclass(frozen=True)
class HeatMap:
    """A table whose cells are shaded; ``None`` is a cell for which there is nothing to say."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Heat | None, ...]], ...]

    @property
    def as_table(self) -> Table:
        """Return the table without shades."""
        rows = ((head, *("" if cell is None else cell.text for cell in cells)) for head, cells in self.rows)
        return Table(self.columns, tuple(rows))


@dataclass(frozen=True)
class Folded:
    """Blocks behind a line that opens them."""

    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Paragraph | Table | Listing | Picture | HeatMap | Folded
Document = Sequence[Block]


def paragraph(*parts: Text, lead: bool = False) -> Paragraph:
    """Return a paragraph of these parts."""
    return Paragraph(parts, lead)
