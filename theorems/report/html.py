"""A document as one HTML file that loads nothing."""

from __future__ import annotations

import re
from html import escape

from theorems.core.claim import Verdict
from theorems.report.document import Block, Code, Document, Heading, Link, Listing, Paragraph, Reference, Text

STYLE = """\
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #222; }
h1, h2, h3 { line-height: 1.25; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.92em; overflow-wrap: anywhere; }
pre { background: #f4f4f4; padding: 0.8rem; overflow-x: auto; }
.upheld { color: #00694a; } .falsified { color: #b03a00; font-weight: bold; }
.inconclusive { color: #8a5a00; } .not-applicable { color: #666; }
"""


def html(document: Document) -> str:
    """The text of the file."""
    title = next((block.text for block in document if isinstance(block, Heading)), "")
    body = "\n".join(map(_block, document))
    head = f'<meta charset="utf-8">\n<title>{escape(title)}</title>\n<style>\n{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        anchor = f' id="{_anchor(block.name)}"' if block.name else ""
        return f"<h{block.level}{anchor}>{escape(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{''.join(map(_inline, block.parts))}</p>"
    if isinstance(block, Listing):
        return f"<pre>{escape(block.text.rstrip())}</pre>"
    head = "".join(f"<th>{escape(column)}</th>" for column in block.columns)
    rows = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in block.rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _cell(text: Text) -> str:
    verdict = f' class="{text}"' if text in set(Verdict) else ""
    return f"<td{verdict}>{_inline(text)}</td>"


def _inline(text: Text) -> str:
    if isinstance(text, Link):
        return f'<a href="{escape(text.target)}">{escape(text.text)}</a>'
    if isinstance(text, Reference):
        return f'<a href="#{_anchor(text)}"><code>{escape(text)}</code></a>'
    return f"<code>{escape(text)}</code>" if isinstance(text, Code) and text else escape(text)


def _anchor(text: str) -> str:
    """What may stand in an id and after a #."""
    return re.sub(r"[^\w-]+", "-", text)
