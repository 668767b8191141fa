"""Figures to files: the only place that imports matplotlib, and only when something is drawn."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.figures.figure import Figure, Numbers
from theorems.figures.style import SETTINGS

FORMATS = ("svg", "png", "pdf")
WITHOUT_DATE: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "theorems figures"},
    "png": {"Software": "theorems figures"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "theorems figures", "Producer": None},
}
"""No file says when, or with which version of the drawing library, it was made."""
PIXELS_PER_INCH = 150


def check_matplotlib(what: str = "figures") -> None:
    """Refuse to start ``what`` without the drawing library.

    Raises:
        InvalidInput: it is not installed.
    """
    if find_spec("matplotlib") is None:
        raise InvalidInput(
            f"{what}: matplotlib is not installed; install it, or this package with its extra: pip install"
            " 'max-margin-theorems[figures]'."
        )


def render_figure(one: Figure, numbers: Numbers, kind: str) -> bytes:
    """The figure as the bytes of a file; the same numbers, the same bytes.

    Args:
        one: which figure.
        numbers: what it draws.
        kind: one of :data:`FORMATS`.
    """
    return as_file(one.size, caption(one), lambda sheet: one.draw(sheet, numbers), kind)


def as_file(size: tuple[float, float], title: str, draw: Callable[[Any], None], kind: str) -> bytes:
    """What ``draw`` draws on a matplotlib Figure of that size, as the bytes of a file; same drawing, same bytes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        parameters.update(SETTINGS)
        sheet = Sheet(figsize=size, layout="constrained")
        FigureCanvasAgg(sheet)
        draw(sheet)
        sheet.suptitle(title, fontsize=9, x=0.01, ha="left")
        buffer = io.BytesIO()
        sheet.savefig(buffer, format=kind, dpi=PIXELS_PER_INCH, metadata=WITHOUT_DATE[kind])
    return buffer.getvalue()


def caption(one: Figure) -> str:
    """Number and title, in lines that fit when they are typeset: formulas have no space, words stand one for one."""
    words = iter([rf"$\bf{{Figure\ {one.label}.}}$", *(one.title[:1].upper() + one.title[1:]).split()])
    lines = textwrap.wrap(f"Figure_{one.label}. {one.plain_title}", int(one.size[0] * 13), break_on_hyphens=False)
    return "\n".join(" ".join(islice(words, len(line.split()))) for line in lines)


def path_of(directory: Path, one: Figure, ending: str) -> Path:
    """Where a figure, or with ending ``json`` its numbers, is written."""
    return directory / f"{one.stem}.{ending}"
