"""Small plot as inline SVG; its colours come from the report's style sheet, so that it fits light and dark mode."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

LEFT, RIGHT, TOP, BOTTOM = 44.0, 12.0, 12.0, 36.0
"""Margins for the labels around the plot, in SVG units (those of the viewBox)."""
TICKS = 5
"""Approximate number of tick marks on an axis."""

Range = tuple[float, float]


@dataclass
class Plot:
    """Plot: a rectangle with axes, and the elements drawn in it.

    Attributes:
        description: the content of the plot in words, for screen readers.
        x, y: the ranges of the axes; if ``x_is_log``, the range x is of logarithms to base 10.
        x_label, y_label: the labels of the axes.
        x_is_log: whether the x axis is logarithmic.
        width, height: the size of the plot in SVG units (those of the viewBox).
        parts: the SVG elements drawn so far.
    """

    description: str
    x: Range
    y: Range
    x_label: str
    y_label: str
    x_is_log: bool = False
    width: float = 320.0
    height: float = 220.0
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> str:
        """Return a point's position in SVG units as text, rounded to 0.1, so that rounding errors do not matter."""
        across = LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (self.width - LEFT - RIGHT)
        down = self.height - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (self.height - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    def line(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draw the polyline through those points that lie within the ranges; ``kind`` is a class of the style sheet."""
        low, high = self.y
        visible = [(x, y) for x, y in points if self.x[0] <= x <= self.x[1] and low <= y <= high]
        self.parts.append(f'<polyline class="{kind}" points="{" ".join(self.at(*point) for point in visible)}"/>')

    def dot(self, x: float, y: float, kind: str, description: str = "") -> None:
        """Draw a disc, with ``description`` as a tooltip if it is not empty; ``kind`` is a class of the style sheet."""
        across, down = self.at(x, y).split(",")
        title = f"<title>{escape(description)}</title>" if description else ""
        self.parts.append(f'<circle class="{kind}" cx="{across}" cy="{down}" r="3.2">{title}</circle>')

    def name(self, x: float, y: float, text: str, kind: str, anchor: str = "end") -> None:
        """Draw a label; ``kind``, a class of the style sheet, gives it the colour of the element that it names."""
        across, down = self.at(x, y).split(",")
        self.parts.append(
            f'<text class="{kind}" x="{across}" y="{down}" text-anchor="{anchor}">{_typeset(text)}</text>'
        )

    def svg(self) -> str:
        """Return the plot as an ``svg`` element."""
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        shapes = [f'<path class="axis" d="M{LEFT},{TOP}V{bottom:g}H{right:g}"/>']
        for tick in _ticks(self.x, whole=self.x_is_log):
            x = self.at(tick, self.y[0]).split(",")[0]
            text = _power(tick) if self.x_is_log else _plain(tick)
            shapes.append(f'<text x="{x}" y="{bottom + 14:g}" text-anchor="middle">{text}</text>')
        for tick in _ticks(self.y):
            y = float(self.at(self.x[0], tick).split(",")[1])
            shapes.append(f'<text x="{LEFT - 5:g}" y="{y + 4:.1f}" text-anchor="end">{_plain(tick)}</text>')
        middle, below = (LEFT + right) / 2, self.height - 5
        labels = (
            f'<text x="{middle:g}" y="{below:g}" text-anchor="middle">{_typeset(self.x_label)}</text>'
            f'<text x="{LEFT + 6:g}" y="{TOP + 4:g}">{_typeset(self.y_label)}</text>'
        )
        return element(self.description, self.width, self.height, "".join([*shapes, *self.parts, labels]))


def element(description: str, width: float, height: float, inner: str) -> str:
    """Return an ``svg`` element with the given content, size and description for screen readers."""
    view = f'viewBox="0 0 {width:g} {height:g}" style="max-width: {width:g}px"'
    return f'<svg role="img" aria-label="{escape(description)}" {view}>{inner}</svg>'


def _typeset(text: str) -> str:
    """Return the text as SVG, with the letters after an underscore as a subscript, such as the mm of ``p_mm(α)``."""
    return re.sub(r"_(\w+)([^_]*)", r'<tspan class="sub" dy="3">\1</tspan><tspan dy="-3">\2</tspan>', escape(text))


def _ticks(limits: Range, *, whole: bool = False) -> list[float]:
    """Return round numbers within a range, about :data:`TICKS`, for tick marks; if ``whole``, whole numbers."""
    rough = (limits[1] - limits[0]) / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
    step = max(1.0, float(round(step))) if whole else step
    first = math.ceil(limits[0] / step - 1e-9)
    return [k * step for k in range(first, math.floor(limits[1] / step + 1e-9) + 1)]


def _plain(number: float) -> str:
    return f"{number:.6g}".replace("-", "−")


def _power(exponent: float) -> str:
    return "10" + f"{exponent:.0f}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
