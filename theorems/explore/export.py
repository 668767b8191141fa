"""The page as a file that needs neither server nor network, with pictures, hover values and slider."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.resources import INLINE

from theorems.explore.layout import Layout
from theorems.explore.page_style import TEMPLATE
from theorems.explore.picture_parts import parts_of
from theorems.explore.state import State
from theorems.explore.verdict_tables import assumptions_html, statements_html, summary_text
from theorems.explore.verdicts import assumptions_of, plan
from theorems.run.findings import NamedFinding
from theorems.run.verify import nothing

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'unsafe-inline' 'unsafe-eval'",  # for Bokeh's scripts, and for callbacks, which Bokeh compiles
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "font-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
"""Content security policy under which a browser loads and sends nothing, whatever the data contain."""
EXPORTED = TEMPLATE.replace(
    "preamble %}", f'preamble %}}<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
)


def document_of(state: State, assumptions: Sequence[NamedFinding], verdicts: str = "", status: str = "") -> Document:
    """Return the page as a Bokeh document.

    Args:
        state: the state of the page.
        assumptions: findings about the assumptions on the data.
        verdicts: verdicts on statements, as HTML.
        status: HTML to show above the pictures.
    """
    layout = Layout(state, served=False)
    for part, solved in parts_of(state):
        layout.draw(part, solved)
    layout.set_title(state)
    layout.status.text = status
    layout.assumptions.text = assumptions_html(assumptions)
    layout.verdicts.text = verdicts
    document = Document()
    document.title = f"{state.case.name}, explored"
    layout.add_to(document)
    return document


def page_html(state: State) -> str:
    """Return the page as one file."""
    units = plan(state.case)
    verdicts = {k: unit.run(nothing) for k, unit in enumerate(units)}
    summary = f"<p>{escape(summary_text(units, verdicts))}</p>"
    document = document_of(state, assumptions_of(state.case), statements_html(units, verdicts), summary)
    return file_html(document, INLINE, document.title, template=EXPORTED, suppress_callback_warning=True)
