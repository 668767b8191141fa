"""Style of the page as CSS: colours for colour-blind readers, legible in light and dark mode."""

from __future__ import annotations

from typing import Any

from bokeh.models import CustomJS, InlineStyleSheet
from bokeh.palettes import Cividis256

from theorems.figures.style import BLUE, GREEN, ORANGE, PINK, RED, SKY

RULE_COLORS = {
    "flow": GREEN,
    "gradient descent": PINK,
    "normalized descent": ORANGE,
    "sign descent": SKY,
    "Muon": "#9467bd",
}
KIND_COLORS = {"GMM": BLUE, "LMM": RED, "not optimal": "#808080"}
RISK = "Viridis256"
SCORE = list(Cividis256[70:])
"""Palette of scores, without its darkest colours, which are invisible in dark mode."""
INK = {"light": "#1c1c1e", "dark": "#e8e8ea"}
"""Text colours on a canvas, which CSS does not reach, by colour scheme."""

PAGE = """
:root {
  color-scheme: light dark; --paper: #ffffff; --ink: #1c1c1e; --soft: #56565c; --rule: #d8d8dc;
  --right: #00694a; --wrong: #a83600; --open: #755000; --link: #00528f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #17181b; --ink: #e8e8ea; --soft: #aeb0b8; --rule: #3b3d44;
    --right: #5fd3a8; --wrong: #ff9e6b; --open: #e6b84d; --link: #8cc4f5;
  }
}
:root {
  --bk-background-fill-color: var(--paper); --bk-border-fill-color: var(--paper); --bk-text-color: var(--ink);
  --bk-axis-label-text-color: var(--ink); --bk-major-label-text-color: var(--soft); --bk-title-text-color: var(--ink);
  --bk-axis-line-color: var(--soft); --bk-major-tick-line-color: var(--soft); --bk-minor-tick-line-color: var(--soft);
  --bk-grid-line-color: var(--rule); --bk-outline-line-color: var(--rule); --bk-label-text-color: var(--ink);
  --bokeh-base-font: system-ui, sans-serif; --bokeh-font-size: 14px; --bokeh-icon-color: var(--soft);
}
body { margin: 0; padding: 0.6rem; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
"""
"""Style of the page; drawings on a canvas use its variables."""

TEMPLATE = f"""
{{% block preamble %}}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,"><style>{PAGE}</style>{{% endblock %}}
"""
"""Additions to Bokeh's own page template."""

WIDGETS = """
:host {
  --color: var(--ink); --background-color: var(--paper); --border-color: var(--soft); --divider-color: var(--rule);
  --hover-color: var(--rule); --surface-background-color: var(--rule); --placeholder-color: var(--soft);
  --disabled-color: var(--soft); --inactive-fg: var(--soft); color: var(--ink); min-width: 0; max-width: 100%;
}
input::file-selector-button { background: var(--paper); color: var(--ink); border: 1px solid var(--soft); }
input, select, textarea, .bk-input { background-color: var(--paper); color: var(--ink); }
.bk-btn { background-color: var(--paper); color: var(--ink); border-color: var(--soft); }
.bk-btn:hover { background-color: var(--rule); }
.bk-btn.bk-active { background-color: var(--ink); color: var(--paper); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
a { color: var(--link); }
.bk-btn-group { flex-wrap: wrap; }
.scroll { overflow-x: auto; max-width: 100%; } .bk-clearfix { min-width: 0; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.88rem; }
table.wide { min-width: 44rem; }
caption { text-align: left; font-weight: 600; padding: 0.5rem 0 0.2rem; }
th, td { text-align: left; vertical-align: top; padding: 0.15rem 0.6rem 0.15rem 0; }
th, td { border-bottom: 1px solid var(--rule); }
td:nth-child(-n+2) { white-space: nowrap; }
@media (max-width: 40rem) {
  table.wide { min-width: 0; } table.wide thead { display: none; }
  table.wide tr { display: block; padding: 0.3rem 0; border-bottom: 1px solid var(--rule); }
  table.wide td { display: block; border: 0; padding: 0; white-space: normal; overflow-wrap: anywhere; }
}
.right { color: var(--right); } .wrong { color: var(--wrong); }
.open { color: var(--open); } .soft { color: var(--soft); }
h1 { font-size: 1.25rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0.6rem 0 0.1rem; } p { margin: 0.2rem 0; }
.slick-header-columns, .slick-header-column, .slick-row, .slick-cell, .grid-canvas, .slick-viewport {
  background: var(--paper) !important; color: var(--ink) !important; border-color: var(--rule) !important;
}
.slick-cell input { width: 100%; box-sizing: border-box; font: inherit; }
.slick-cell.active { outline: 2px solid var(--link); }
"""
"""Style inside the shadow DOM of a widget, which the style of the page reaches only through variables."""


def style_sheet() -> InlineStyleSheet:
    """Return a new style sheet; each document needs its own, as documents share no model."""
    return InlineStyleSheet(css=WIDGETS)


def ink_callback(written: list[tuple[Any, str]]) -> CustomJS:
    """Return a callback that sets text colours on a canvas by the colour scheme, now and when the scheme changes.

    Args:
        written: models, each with the name of its colour property.
    """
    code = """
const scheme = matchMedia('(prefers-color-scheme: dark)');
const write = () => { for (const [model, name] of written) model[name] = scheme.matches ? inks.dark : inks.light };
if (!window.scheme_is_heard) { window.scheme_is_heard = true; scheme.addEventListener('change', write) }
write();
"""
    return CustomJS(args={"written": written, "inks": INK}, code=code)
