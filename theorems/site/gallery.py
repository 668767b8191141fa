"""Gallery of the site: an interactive page for each dataset of a figure and for each counterexample."""

from __future__ import annotations

from collections.abc import Collection
from html import escape
from importlib.util import find_spec
from pathlib import Path

GALLERY = "gallery"
"""Name of the gallery's folder within the site."""
INTRODUCTION = (
    "Pages of [`theorems explore`](../docs/explore.md): pictures with hover values, and a slider through the run. The"
    " command opens the same pages with tokens that can be dragged."
)


def write_gallery_pages(folder: Path, names: Collection[str] | None = None) -> bool:
    """Write the pages of the gallery and return True; without bokeh, write nothing and return False.

    Args:
        folder: the folder in which the pages are written.
        names: the names of the datasets and counterexamples to show; all by default.
    """
    if find_spec("bokeh") is None:
        return False
    from theorems.explore.gallery import write_gallery

    tables: dict[bool, list[str]] = {False: [], True: []}
    for page in write_gallery(folder, names):
        link = f'<a href="{escape(page.file)}">{escape(page.name)}</a>'
        tables[page.is_counterexample].append(f"<tr><td>{link}</td><td>{escape(page.says)}</td></tr>")
    parts = ["# Gallery", INTRODUCTION]
    for is_counterexample, title in ((False, "Figures and data"), (True, "Counterexamples")):
        parts += [f"## {title}", f'<table class="docutils">{"".join(tables[is_counterexample])}</table>']
    (folder / "index.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return True
