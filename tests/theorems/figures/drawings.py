"""Short summaries of figures and their drawings, in numbers; the expected summaries are in ``kept.json``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from reference_attention.files import to_json
from reference_attention.problem import Problem
from theorems.explanations import plot
from theorems.figures import bench_plot
from theorems.figures.bench_plot import COLORS
from theorems.figures.registry import FIGURES
from theorems.library.explain import explain

KEPT = Path(__file__).with_name("kept.json")
FEW = 4
"""Up to this many rows are stored one by one; of more, their number, the first, the last, the mean and the spread."""
SAME, NOTHING = 2e-3, 1e-9
"""Relative and absolute change of a number that is put down to another processor; the absolute change is in units of
the largest number beside it.
"""
EXPLAINED: dict[str, Any] = {
    "figure-1b": "figure-1b",
    "three dimensions": Problem(
        [[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.2, 0.0, 0.7]], [[0.0, 0.0, 2.0], [0.0, 1.0, 1.0], [1.0, -1.0, 0.0]]],
        [[1.0, 0.5, 0.0], [1.0, 0.0, -1.0]],
    ),
    "nine inputs": Problem(
        [[[1.0, 0.1 * k, 0.0], [0.0, 0.2 * k, 0.3], [0.1, -0.1 * k, 1.0]] for k in range(9)], [[1.0, 0.0, -1.0]] * 9
    ),
}
"""Data whose explanations are drawn: two-dimensional, of more dimensions, with more inputs than a legend holds."""


def rows(values: Any) -> Any:
    """Return the summary of an array along its first axis."""
    numbers = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    if len(numbers) <= FEW:
        return numbers.tolist()
    moments = (np.nanmean(numbers, axis=0), np.nanstd(numbers, axis=0))
    return [f"{len(numbers)} rows", *(np.asarray(row).tolist() for row in (numbers[0], numbers[-1], *moments))]


def numbers(value: Any) -> Any:
    """Return the numbers of a figure unchanged, except that long lists of equal shape are summarised."""
    if isinstance(value, dict):
        return {key: numbers(own) for key, own in value.items()}
    if not isinstance(value, list):
        return value
    try:
        return rows(value) if value else []
    except (ValueError, TypeError):
        return [numbers(own) for own in value]


def drawing(size: tuple[float, float], draw: Callable[[Any], None]) -> list[Any]:
    """Return what was drawn on a sheet: the axes and the parts of each plot, in their order."""
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet(figsize=size, layout="constrained")
    draw(sheet)
    return [[_axes(axes), *filter(None, map(_part, axes.get_children()))] for axes in sheet.axes]


def _axes(axes: Any) -> list[Any]:
    legend = axes.get_legend()
    words = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale(), axes.get_yscale()]
    return [words, [*axes.get_xlim(), *axes.get_ylim()], [text.get_text() for text in legend.texts] if legend else []]


def _part(part: Any) -> list[Any] | None:
    from matplotlib import colors, lines, patches, text

    def shade(color: Any) -> Any:
        return [colors.to_hex(rgba) for rgba in colors.to_rgba_array(color)][:FEW]

    if isinstance(part, lines.Line2D):
        style = [part.get_linestyle(), part.get_marker(), part.get_linewidth(), part.get_markersize(), part.zorder]
        return ["line", shade(part.get_color()), style, rows(part.get_xydata())]
    if isinstance(part, text.Text):
        where = [*map(float, part.get_position()), part.get_ha(), part.get_va(), part.get_rotation()]
        return ["text", part.get_text(), shade(part.get_color()), where] if part.get_text() else None
    if isinstance(part, patches.Patch):
        corners = part.get_path().transformed(part.get_patch_transform()).vertices
        return ["patch", shade(part.get_facecolor()), rows(corners)]
    if hasattr(part, "get_offsets"):
        outlines = [rows(path.vertices) for path in part.get_paths()[:FEW]]
        return ["many", shade(part.get_facecolor()), rows(part.get_offsets()), outlines]
    return None


def explanation(data: Any) -> list[Any]:
    """Return the summary of the drawing of an explanation of the data."""
    caught: list[Any] = []

    def caught_here(size: tuple[float, float], title: str, draw: Callable[[Any], None], kind: str) -> bytes:
        caught.extend([title, *drawing(size, draw)])
        return b""

    with mock.patch.object(plot, "as_file", caught_here):
        explain(data).plot("svg")
    return caught


def comparison() -> list[Any]:
    """Return the summary of a drawing of ``theorems bench`` with more rules than colours; one rule reaches
    distance 0.
    """
    t = np.array([1, 10, 100])
    curves = {f"rule-{k}": (t, np.array([1.0, 0.5 / (k + 1), 0.0 if k == 1 else 1e-3])) for k in range(len(COLORS) + 2)}
    return drawing((9.0, 4.0), lambda sheet: bench_plot._draw(sheet, [("one", curves), ("other", {})], 1, 2))


def figure(name: str, own: Any) -> list[Any]:
    """Return the summaries of a figure's numbers and of its drawing."""
    return [numbers(own), *drawing(FIGURES[name].size, lambda sheet: FIGURES[name].draw(sheet, own))]


def short(value: Any) -> Any:
    """Round floats to five digits."""
    if isinstance(value, dict):
        return {key: short(own) for key, own in value.items()}
    if isinstance(value, list):
        return [short(own) for own in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def keep(shown: dict[str, list[Any]]) -> None:
    """Write the summaries to ``kept.json``, a line for each part."""
    parts = [
        json.dumps(name) + ": [\n" + ",\n".join(to_json(short(part)) for part in own) + "\n]"
        for name, own in shown.items()
    ]
    KEPT.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def kept(name: str) -> Any:
    """Return the stored summary of a figure or of data."""
    return json.loads(KEPT.read_text(encoding="utf-8"))[name]


def apart(before: Any, now: Any, where: str = "") -> list[str]:
    """Return descriptions of the places where two summaries differ by more than another processor explains."""
    moved = [f"{where}: {before} was, {now} is"]
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        return [line for key in before for line in apart(before[key], now[key], f"{where}/{key}")]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        if before and all(isinstance(number, float | int) for number in before + now):
            near = SAME * np.nanmax(np.abs(before), initial=0.0) + NOTHING
            return [] if np.allclose(now, before, rtol=0, atol=near, equal_nan=True) else moved
        return [line for k, pair in enumerate(zip(before, now, strict=True)) for line in apart(*pair, f"{where}/{k}")]
    if isinstance(before, float) and isinstance(now, float):
        return apart([before], [now], where)
    return [] if before == now else moved
