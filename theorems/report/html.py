"""Rendering of a document as one HTML file for light and dark mode, without scripts and external resources."""

from __future__ import annotations

import html as markup
import re

from reference_attention.errors import printable
from theorems.core.claim import Verdict
from theorems.report.document import (
    Block,
    Code,
    Document,
    Folded,
    Heading,
    Heat,
    HeatMap,
    Link,
    Listing,
    Paragraph,
    Picture,
    Reference,
    Share,
    Table,
    Text,
)
from theorems.report.style import STYLE

HEAD = """\
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""
"""Beginning of the HTML file; its content security policy forbids the browser to load or run anything."""


def html(document: Document) -> str:
    """Return the document as the text of an HTML file."""
    title = next((block.text for block in document if isinstance(block, Heading)), "")
    body = "\n".join(map(_block, document))
    head = f"<head>\n{HEAD}<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>"
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n'


def _block(block: Block) -> str:
    match block:
        case Heading():
            anchor = f' id="{_anchor(block.name)}"' if block.name else ""
            return f"<h{block.level}{anchor}>{escape(block.text)}</h{block.level}>"
        case Paragraph():
            opening = '<p class="lead">' if block.lead else "<p>"
            return f"{opening}{''.join(map(_inline, block.parts))}</p>"
        case Listing():
            return f'<pre tabindex="0">{escape(block.text.rstrip())}</pre>'
        case Picture():
            images = "\n".join(block.images)
            return f"<figure>\n<div>\n{images}\n</div>\n<figcaption>{escape(block.caption)}</figcaption>\n</figure>"
        case Folded():
            inner = "\n".join(map(_block, block.blocks))
            return f"<details>\n<summary>{escape(block.summary)}</summary>\n{inner}\n</details>"
        case HeatMap():
            return _heat_map(block)
        case Table():
            rows = ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in block.rows]
            return _table(block.columns, rows)


def _table(columns: tuple[str, ...], rows: list[str], kind: str = "") -> str:
    """Return a table in a box that scrolls if the page is narrower than the table."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    top = f"<thead><tr>{head}</tr></thead>\n" if any(columns) else ""
    body = "\n".join(rows)
    return f'<div class="scroll" tabindex="0">\n<table{kind}>\n{top}<tbody>\n{body}\n</tbody>\n</table>\n</div>'


def _heat_map(block: HeatMap) -> str:
    rows = [
        f'<tr><th scope="row">{_inline(head)}</th>{"".join(map(_shaded_cell, cells))}</tr>'
        for head, cells in block.rows
    ]
    return _table(block.columns, rows, ' class="heat"')


def _shaded_cell(cell: Heat | None) -> str:
    return "<td></td>" if cell is None else f'<td class="shade-{cell.shade}">{escape(cell.text)}</td>'


def _cell(text: Text) -> str:
    verdict = f' class="{text}"' if text in set(Verdict) else ""
    return f"<td{verdict}>{_inline(text)}</td>"


def _inline(text: Text) -> str:
    if isinstance(text, Link):
        return f'<a href="{escape(text.target)}">{escape(text.text)}</a>'
    if isinstance(text, Share):
        kind, width = "bar" if text.value <= 1 else "bar over", f"{min(text.value, 1.0):.0%}"
        bar = f'<span class="{kind}"><span style="width: {width}"></span></span>'
        return f'<span class="share">{bar}{text.text}</span>'
    if isinstance(text, Reference):
        return f'<a href="#{_anchor(text)}"><code>{escape(text)}</code></a>'
    return f"<code>{escape(text)}</code>" if isinstance(text, Code) and text else escape(text)


def escape(text: str) -> str:
    """Return the text with escapes, so that nothing in it is markup, and with invisible characters shown."""
    return markup.escape(printable(text, lines=True))


def _anchor(text: str) -> str:
    """Return a text changed so that it can be an element's id, to which a link with ``#`` may point."""
    return re.sub(r"[^\w-]+", "-", text)
