"""The files of figures. No other module imports matplotlib, and this one only when a figure is drawn."""

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
"""The metadata of files by format, without date or version of matplotlib, so that equal drawings give equal files."""
PIXELS_PER_INCH = 150


def check_matplotlib(purpose: str = "figures") -> None:
    """Check that matplotlib is installed; ``purpose`` says in the message of the error what needs it.

    Raises:
        InvalidInput: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise InvalidInput(
            f"{purpose}: matplotlib is not installed; install it, or this package with its extra: pip install"
            " 'max-margin-theorems[figures]'."
        )


def render_figure(figure: Figure, numbers: Numbers, kind: str) -> bytes:
    """Return the bytes of the file of a figure; equal numbers give equal bytes.

    Args:
        figure: the figure.
        numbers: the numbers that the figure draws.
        kind: the format of the file, one of :data:`FORMATS`.
    """
    return as_file(figure.size, caption(figure), lambda sheet: figure.draw(sheet, numbers), kind)


def as_file(size: tuple[float, float], title: str, draw: Callable[[Any], None], kind: str) -> bytes:
    """Draw on a matplotlib Figure of the given size and return the bytes of a file; equal drawings give equal bytes.

    Args:
        size: width and height in inches.
        title: the title above the drawing.
        draw: the function that draws on a given matplotlib Figure.
        kind: the format of the file, one of :data:`FORMATS`.
    """
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


def caption(figure: Figure) -> str:
    """Return the figure's number and title, broken into lines that fit the width of the figure when typeset.

    Formulas contain no spaces, so the words of the typeset title correspond one to one to those of the plain title.
    """
    words = iter([rf"$\bf{{Figure\ {figure.label}.}}$", *(figure.title[:1].upper() + figure.title[1:]).split()])
    lines = textwrap.wrap(
        f"Figure_{figure.label}. {figure.plain_title}", int(figure.size[0] * 13), break_on_hyphens=False
    )
    return "\n".join(" ".join(islice(words, len(line.split()))) for line in lines)


def path_of(directory: Path, figure: Figure, ending: str) -> Path:
    """Return the path of the figure's file with this ending; the file with the figure's numbers ends in ``json``."""
    return directory / f"{figure.stem}.{ending}"
