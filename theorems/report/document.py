"""Blocks of a document, from which Markdown and HTML are rendered.

All texts are plain; the renderers escape them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Code(str):
    """A name in code style."""


class Reference(str):
    """A reference, in code style, to the :class:`Heading` with that ``name``."""


@dataclass(frozen=True)
class Link:
    """A link to a file beside the document."""

    text: str
    target: str


@dataclass(frozen=True)
class Share:
    """A share, shown as a percentage with a bar; a share above 1 is marked as too large."""

    value: float

    @property
    def text(self) -> str:
        """Return the share as a percentage."""
        return f"{self.value:.0%}" if self.value < 10 else "over 1000%"


Text = str | Link | Share


@dataclass(frozen=True)
class Heading:
    """A heading; ``level`` 1 is the title of the document; a :class:`Reference` refers to it by its ``name``."""

    level: int
    text: str
    name: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of texts; ``lead`` marks the most important sentence of the document, set larger."""

    parts: tuple[Text, ...]
    lead: bool = False


@dataclass(frozen=True)
class Table:
    """A table: titles of columns, and rows with a cell for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True)
class Listing:
    """Preformatted text; ``language`` names its language, or is empty."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class Picture:
    """SVG elements side by side with a caption; formats without pictures show the caption alone."""

    images: tuple[str, ...]
    caption: str


@dataclass(frozen=True)
class Heat:
    """A cell of a :class:`HeatMap`: its text and its shade, from 0 (light) to 4 (dark)."""

    text: str
    shade: int


@dataclass(frozen=True)
class HeatMap:
    """A table with shaded cells; None is an empty cell."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Heat | None, ...]], ...]

    @property
    def as_table(self) -> Table:
        """Return the table without shades."""
        rows = ((head, *("" if cell is None else cell.text for cell in cells)) for head, cells in self.rows)
        return Table(self.columns, tuple(rows))


@dataclass(frozen=True)
class Folded:
    """Blocks that are collapsed until the reader opens them."""

    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Paragraph | Table | Listing | Picture | HeatMap | Folded
Document = Sequence[Block]


def paragraph(*parts: Text, lead: bool = False) -> Paragraph:
    """Return a paragraph of these parts."""
    return Paragraph(parts, lead)
