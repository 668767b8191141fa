"""The look of the figures: a palette for colour-blind readers, labels beside what they name, plain axes.

Colours are those of Okabe and Ito. Only matplotlib's object interface is used: no global state, no window.
"""

from __future__ import annotations

from typing import Any

BLUE, RED, GREEN, ORANGE, SKY, PINK = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"
GREY, LIGHT, BLACK = "#707070", "#BBBBBB", "#000000"
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "max-margin-theorems",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "lines.linewidth": 1.4,
    "figure.dpi": 150.0,
    "path.simplify": True,
}
"""The settings of matplotlib for all figures, in place of the user's configuration."""


def plane(axes: Any, left: float, right: float, low: float, high: float, label: str = "p") -> None:
    """Set up axes with equal scales, so that angles in the plane are not distorted."""
    axes.set_aspect("equal")
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.axhline(0, color=LIGHT, linewidth=0.6, zorder=0)
    axes.axvline(0, color=LIGHT, linewidth=0.6, zorder=0)
    axes.set_xlabel(f"${label}_1$")
    axes.set_ylabel(f"${label}_2$")


def ray(axes: Any, direction: list[float], length: float, color: str, *, style: str = "--", width: float = 1.8) -> None:
    """Draw a line from the origin along a direction."""
    axes.plot([0, length * direction[0]], [0, length * direction[1]], style, color=color, linewidth=width, zorder=3)


def name(axes: Any, x: float, y: float, text: str, color: str = BLACK, **options: Any) -> None:
    """Put a label beside the object that it names, on a white box that keeps it legible on lines."""
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
    axes.text(x, y, text, **{"color": color, "bbox": box, "zorder": 6, "fontsize": 8.5, **options})


def arrow(axes: Any, points: list[list[float]], k: int, color: str) -> None:
    """Draw an arrowhead on a path, at its point k, that points to its point k + 1."""
    style = {"arrowstyle": "-|>", "color": color, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=points[k + 1], xytext=points[k], arrowprops=style, zorder=4)
