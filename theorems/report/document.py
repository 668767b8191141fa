"""A document as a list of blocks, the same for Markdown and HTML. All texts are plain;
whoever renders them escapes them."""

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


Text = str | Link


@dataclass(frozen=True)
class Heading:
    """A heading; ``level`` 1 is the document's own; ``name`` is what a :class:`Reference` calls it."""

    level: int
    text: str
    name: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Texts one after the other."""

    parts: tuple[Text, ...]


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as there are columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True)
class Listing:
    """Text to copy, as it is; in a language, if it says which."""

    text: str
    language: str = ""


Block = Heading | Paragraph | Table | Listing
Document = Sequence[Block]


def paragraph(*parts: Text) -> Paragraph:
    """A paragraph of these parts."""
    return Paragraph(parts)
