"""Rendering of a document as Markdown (CommonMark with tables)."""

from __future__ import annotations

import re

from reference_attention.errors import printable
from theorems.report.document import (
    Block,
    Code,
    Document,
    Folded,
    Heading,
    HeatMap,
    Link,
    Listing,
    Paragraph,
    Picture,
    Reference,
    Share,
    Text,
)


def markdown(document: Document) -> str:
    """Return the document as Markdown, ending in a newline."""
    return "\n\n".join(map(_block, document)) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_inline(block.text)}"
    if isinstance(block, Paragraph):
        return "".join(map(_inline, block.parts))
    if isinstance(block, Listing):
        longest = max((len(run) for run in re.findall("`+", block.text)), default=0)
        fence = "`" * max(3, longest + 1)
        return f"{fence}{block.language}\n{printable(block.text.rstrip(), lines=True)}\n{fence}"
    if isinstance(block, Picture):
        return _escape(block.caption)
    if isinstance(block, Folded):
        return "\n\n".join([f"{_escape(block.summary)}:", *map(_block, block.blocks)])
    if isinstance(block, HeatMap):
        return _block(block.as_table)
    rows = [block.columns, ("---",) * len(block.columns), *block.rows]
    return "\n".join("| " + " | ".join(_inline(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)


def _inline(text: Text) -> str:
    if isinstance(text, Link):
        return f"[{_escape(text.text)}]({text.target})"
    if isinstance(text, Share):
        return text.text
    if isinstance(text, Code | Reference):
        return _code(text) if text else ""
    return text if text == "---" else _escape(text)


def _code(text: str) -> str:
    one_line = printable(" ".join(text.split()))
    longest = max((len(run) for run in re.findall("`+", one_line)), default=0)
    marks = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{marks}{space}{one_line}{space}{marks}"


def _escape(text: str) -> str:
    """Return the text with escapes, so that nothing in it is markup, and with the spaces at its ends kept.

    Underscores within a word need no escape, because CommonMark does not interpret them.
    """
    marked = re.sub(r"([\\`*<>\[\]])", r"\\\1", printable(re.sub(r"\s+", " ", text)))
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", marked)
