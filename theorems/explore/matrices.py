"""Matrices where W is trained: the solutions of least Frobenius and least nuclear norm, and W at the end of the run."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, CustomJS, HoverTool, LinearColorMapper, Range1d
from bokeh.palettes import Blues256, Oranges256, diverging_palette
from bokeh.plotting import figure

from theorems.explore.page_style import INK


def matrices_figure(sources: dict[str, ColumnDataSource]) -> tuple[Any, Any, CustomJS]:
    """Return a figure of the matrices, the glyph of their titles, and a callback that fits the axes to them.

    The figure has a square per entry, coloured by its value.
    """
    mapper = LinearColorMapper(palette=diverging_palette(Blues256, Oranges256, 256), low=-1.0, high=1.0)
    plot = figure(
        title="Directions of W, each entry as a share of ‖W‖_F",
        x_range=Range1d(-1, 1),
        y_range=Range1d(-1, 1),
        height=260,
        min_width=300,
        sizing_mode="stretch_width",
        tools="save",
        toolbar_location=None,
        background_fill_alpha=0,
    )
    # Set the ranges when the matrices are set, since an empty plot has no range.
    code = """
const {x, y} = matrices.data;
if (x.length) { xs.setv({start: -1, end: Math.max(...x) + 1.5}); ys.setv({start: Math.min(...y) - 0.7, end: 2}) }
"""
    fit = CustomJS(args={"matrices": sources["matrices"], "xs": plot.x_range, "ys": plot.y_range}, code=code)
    sources["matrices"].js_on_change("data", fit)
    plot.axis.visible = False
    plot.grid.visible = False
    squares = plot.rect("x", "y", 0.96, 0.96, source=sources["matrices"], line_color=None,
                        fill_color={"field": "value", "transform": mapper})  # fmt: skip
    plot.add_tools(HoverTool(renderers=[squares], tooltips=[("", "@what"), ("entry", "@shown")]))
    titles = plot.text("x", "y", text="text", source=sources["titles"], text_font_size="12px", text_color=INK["light"])
    return plot, titles.glyph, fit
