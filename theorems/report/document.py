"""Blocks of which a document consists; other modules render them as Markdown and HTML.

All texts are plain; the renderers escape characters that would be markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Code(str):
    """Text shown in code style, such as a name."""


class Reference(str):
    """Text in code style that links to the :class:`Heading` whose attribute ``name`` equals the text."""


@dataclass(frozen=True)
class Link:
    """Link to a file beside the document."""

    text: str
    target: str


@dataclass(frozen=True)
class Share:
    """Share, shown as a percentage with a bar; a share above 1 is marked as too large."""

    value: float

    @property
    def text(self) -> str:
        """Return the share as a percentage."""
        return f"{self.value:.0%}" if self.value < 10 else "over 1000%"


Text = str | Link | Share


@dataclass(frozen=True)
class Heading:
    """Heading; ``level`` 1 is the title of the document, and a :class:`Reference` refers to the heading by ``name``."""

    level: int
    text: str
    name: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Paragraph of texts; if ``lead`` is true, it is the most important sentence of the document and set larger."""

    parts: tuple[Text, ...]
    lead: bool = False


@dataclass(frozen=True)
class Table:
    """Table: titles of columns, and rows with a cell for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True)
class Listing:
    """Preformatted text; ``language`` names the language it is written in, such as "python", or is empty."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class Picture:
    """One or more SVG elements side by side, with a caption; a format without pictures shows the caption alone."""

    images: tuple[str, ...]
    caption: str


@dataclass(frozen=True)
class Heat:
    """Cell of a :class:`HeatMap`: its text and its shade, from 0 (light) to 4 (dark)."""

    text: str
    shade: int


@dataclass(frozen=True)
class HeatMap:
    """Table whose cells are shaded; None is an empty cell."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Heat | None, ...]], ...]

    @property
    def as_table(self) -> Table:
        """Return the map as a table without shades."""
        rows = ((head, *("" if cell is None else cell.text for cell in cells)) for head, cells in self.rows)
        return Table(self.columns, tuple(rows))


@dataclass(frozen=True)
class Folded:
    """Blocks that are collapsed until the reader opens them; until then only ``summary`` is shown."""

    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Paragraph | Table | Listing | Picture | HeatMap | Folded
Document = Sequence[Block]


def paragraph(*parts: Text, lead: bool = False) -> Paragraph:
    """Return a paragraph of these texts; ``lead`` marks the document's most important sentence."""
    return Paragraph(parts, lead)
