"""Pages of the notebooks: their text and code, with the text and the pictures that running the code gives."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from theorems.figures.figure_files import WITHOUT_DATE
from theorems.figures.style import SETTINGS

NOTEBOOKS = "docs/notebooks"
"""Folder of the notebooks, both in the repository and on the site."""


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        source: the content of the cell: Markdown or Python.
        is_code: whether the content is Python.
        printed: the text that running the cell printed.
        pictures: the figures that running the cell drew, each as an SVG file.
    """

    source: str
    is_code: bool
    printed: str = ""
    pictures: tuple[bytes, ...] = ()


def read_notebook(path: Path) -> list[Cell]:
    """Return the cells of a notebook (nbformat 4) without running them."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [Cell("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]


def run_notebook(path: Path) -> tuple[list[Cell], dict[str, Any]]:
    """Run the code cells of a notebook in order, and return all cells and the names that the code defined.

    The code runs in its own namespace and in a temporary working directory. Exceptions that the code raises are not
    caught.
    """
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    settings: Any = SETTINGS
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = read_notebook(path)
    with TemporaryDirectory() as folder, chdir(folder), matplotlib.rc_context(settings):
        for place, cell in enumerate(cells):
            if cell.is_code:
                with redirect_stdout(io.StringIO()) as printed:
                    exec(compile(cell.source, f"{path}, cell {place}", "exec"), names)
                pictures = tuple(_picture(pyplot.figure(number)) for number in pyplot.get_fignums())
                pyplot.close("all")
                cells[place] = replace(cell, printed=printed.getvalue(), pictures=pictures)
    return cells, names


def write_notebook_pages(folder: Path, root: Path) -> list[str]:
    """Write a page with pictures for each notebook; return the pages' paths on the site, without their ending.

    Without matplotlib the notebooks are not run, and their pages have only text and code.

    Args:
        folder: the folder with the source of the site.
        root: the root folder of the repository.
    """
    written = []
    for path in sorted((root / NOTEBOOKS).glob("*.ipynb")):
        cells = run_notebook(path)[0] if find_spec("matplotlib") else read_notebook(path)
        page = folder / NOTEBOOKS / path.with_suffix(".md").name
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, page.with_name(path.name))
        parts = []
        for place, cell in enumerate(cells):
            parts.append(f"```python\n{cell.source}\n```" if cell.is_code else cell.source)
            if cell.printed:
                parts.append("```text\n" + cell.printed.strip("\n") + "\n```")
            for number, picture in enumerate(cell.pictures):
                file = page.with_name(f"{path.stem}-{place}-{number}.svg")
                file.write_bytes(picture)
                parts.append(f"![Picture of the notebook]({file.name})")
        parts.append(f"Download [the notebook]({path.name}).\n")
        page.write_text("\n\n".join(parts), encoding="utf-8")
        written.append(f"{NOTEBOOKS}/{path.stem}")
    return written


def _picture(figure: Any) -> bytes:
    """Return a matplotlib figure as the bytes of an SVG file; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=WITHOUT_DATE["svg"])
    return buffer.getvalue()
