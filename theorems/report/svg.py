"""Inline SVG; its colours come from the report's style sheet, so that it fits light and dark mode."""

from __future__ import annotations

from html import escape


def element(description: str, width: float, height: float, inner: str) -> str:
    """Return an ``svg`` element with the given content, size and description for screen readers."""
    view = f'viewBox="0 0 {width:g} {height:g}" style="max-width: {width:g}px"'
    return f'<svg role="img" aria-label="{escape(description)}" {view}>{inner}</svg>'
