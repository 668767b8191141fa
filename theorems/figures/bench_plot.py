"""Drawing of runs of ``theorems bench``: distance from the limit against t, a curve per rule, a panel per data set."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.errors import InvalidInput
from theorems.benchmark.comparison import Comparison
from theorems.benchmark.measurements import Measurement
from theorems.figures import style
from theorems.figures.figure_files import FORMATS, as_file, check_matplotlib

COLORS = (style.BLUE, style.RED, style.GREEN, style.ORANGE, style.PINK, style.SKY, style.GREY, style.BLACK)
DASHES = ("-", "--", ":", "-.")
"""The dash patterns of lines; all colours are used with one pattern before the next pattern is used."""
PANEL = 4.2, 3.4
"""The width and the height of a panel in inches."""
ACROSS = 3
WINDOW = 9
"""The number of points in the window of a running median; a curve has 61 points, evenly spaced in log t."""
TURNS = 1 / 4
"""A curve counts as noisy if at least this share of its points are turning points, where it begins to rise or fall."""
FAINT = 0.3
"""The opacity of a noisy curve, over which its running median is drawn."""
TITLE = "Distance ‖p/‖p‖ − limit‖ from the limit that theory predicts for each rule, or from p_mm if it predicts none"
NOISY = "; noisy runs are faint, with a running median"

Curve = tuple[Int64[np.ndarray, "r"], Float64[np.ndarray, "r"]]
Panel = tuple[str, dict[str, Curve]]


def check_kind(path: Path) -> None:
    """Check that the ending of a path names a supported format, and that matplotlib is installed.

    Raises:
        InvalidInput: the file extension is not supported, or matplotlib is not installed.
    """
    if path.suffix.removeprefix(".") not in FORMATS:
        raise InvalidInput(f"--plot: {path} has another ending than {', '.join(FORMATS)}; choose one of them.")
    check_matplotlib("--plot")


def render_plot(named: Sequence[Comparison], generated: Sequence[Comparison], path: Path) -> bytes:
    """Return the bytes of the drawing in the format that the ending of ``path`` names; equal runs give equal bytes."""
    panels = list(panels_of(named, generated))
    across = min(ACROSS, max(len(panels), 1))
    down = math.ceil(len(panels) / across) or 1
    size = PANEL[0] * across, PANEL[1] * down + 0.8
    title = TITLE + NOISY * any(is_noisy(distance) for _, curves in panels for _, distance in curves.values())
    title = textwrap.fill(title, int(size[0] * 13))
    return as_file(size, title, lambda sheet: _draw(sheet, panels, down, across), path.suffix.removeprefix("."))


def panels_of(named: Sequence[Comparison], generated: Sequence[Comparison]) -> Iterator[Panel]:
    """Yield each panel's title and curves by rule: a panel per named data set, one of medians of generated problems."""
    for comparison in named:
        if not comparison.no_limit:
            yield comparison.name, {run.rule: _curve(run) for run in comparison.rules}
    some = [comparison for comparison in generated if not comparison.no_limit]
    if some:
        by_rule: dict[str, list[Curve]] = {}
        for run in (run for comparison in some for run in comparison.rules):
            by_rule.setdefault(run.rule, []).append(_curve(run))
        medians = {
            rule: (curves[0][0], np.median([distance for _, distance in curves], axis=0))
            for rule, curves in by_rule.items()
        }
        yield f"median of {len(some)} generated problems", medians


def _curve(run: Measurement) -> Curve:
    iterations, one_minus_cosine = run.curve
    return np.array(iterations, dtype=np.int64), np.sqrt(2 * np.array(one_minus_cosine))


def is_noisy(distance: Float64[np.ndarray, "r"]) -> bool:
    """Return whether a curve rises and falls so often that it needs a running median."""
    steps = np.sign(np.diff(distance))
    steps = steps[np.isfinite(steps) & (steps != 0)]
    return bool((steps[1:] != steps[:-1]).sum() >= TURNS * len(distance))


def running_median(distance: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return, for each point of a curve, the median of at most :data:`WINDOW` points around it, without NaN."""
    half = WINDOW // 2
    return np.array(
        [
            np.nan if np.isnan(own).all() else np.nanmedian(own)
            for own in (distance[max(k - half, 0) : k + half + 1] for k in range(len(distance)))
        ]
    )


def _draw(sheet: Any, panels: Sequence[Panel], down: int, across: int) -> None:
    rules = list(dict.fromkeys(rule for _, curves in panels for rule in curves))
    lines: dict[str, Any] = {}
    for k, (title, curves) in enumerate(panels):
        axes = sheet.add_subplot(down, across, k + 1)
        for rule, (t, distance) in curves.items():
            number = rules.index(rule)
            color, dash = COLORS[number % len(COLORS)], DASHES[number // len(COLORS) % len(DASHES)]
            positive = np.where(distance > 0, distance, np.nan)
            if is_noisy(positive):
                axes.plot(t, positive, "-", color=color, linewidth=0.6, alpha=FAINT)
                positive = running_median(positive)
            (lines[rule],) = axes.plot(t, positive, dash, color=color, label=rule)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("iteration t")
        axes.set_title(title)
    if lines:
        sheet.legend(
            handles=list(lines.values()), loc="outside lower center", ncols=2 * across, fontsize=8, frameon=False
        )
