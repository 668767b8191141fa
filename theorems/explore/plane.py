"""The plane as a Bokeh figure: tokens and starts that can be dragged, directions, margin band, runs, contours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.events import Tap
from bokeh.models import (
    ColorBar,
    ColumnDataSource,
    CustomJS,
    DataRange1d,
    HoverTool,
    LinearColorMapper,
    PointDrawTool,
)
from bokeh.plotting import figure
from bokeh.transform import factor_cmap

from theorems.explore.page_style import INK, KIND_COLORS, RISK, RULE_COLORS, SCORE
from theorems.explore.plane_view import View

NAMES = ("tokens", "starts", "rays", "band", "runs", "contours")
"""Names of the sources whose columns are drawn."""
OFTEN = 100
"""Milliseconds between two messages from the browser about a dragged token."""

ON_THE_WAY = """
const now = Date.now();
if (cb_obj.selected.indices.length == 0 || now - (cb_obj.sent_at ?? 0) < often) return;
cb_obj.sent_at = now;
moved.data = {x: Array.from(cb_obj.data.x), y: Array.from(cb_obj.data.y)};
"""

LET_GO = "setTimeout(() => { for (const source of sources) source.selected.indices = [] }, 50)"
"""Script that clears the selection after a click; otherwise the next drag would move the clicked token, too."""


class Plane:
    """The figure of the plane, with its glyphs.

    Attributes:
        figure: the Bokeh figure.
        sources: columns by name.
        moved: sources with the places ``x`` and ``y`` of tokens, and of starts, during a drag.
        written: models, each with the name of the colour property that depends on the colour scheme.
    """

    def __init__(self, sources: dict[str, ColumnDataSource], *, draggable: bool) -> None:
        """Make the figure; if ``draggable``, tokens and starts can be dragged."""
        self.sources = sources
        self.moved = {name: ColumnDataSource({"x": [], "y": []}) for name in ("tokens", "starts")}
        self.mapper = LinearColorMapper(palette=SCORE, low=0.0, high=1.0)
        corners = sources["corners"]
        self.figure = figure(
            name="plane",
            match_aspect=True,
            sizing_mode="scale_width",
            aspect_ratio=1.05,
            min_width=300,
            max_width=720,
            tools="pan,wheel_zoom,reset,save",
            active_drag=None,
            toolbar_location="above",
            background_fill_alpha=0,
            output_backend="canvas",
        )
        invisible = self.figure.scatter("x", "y", source=corners, size=0, alpha=0)
        for side in ("x_range", "y_range"):
            axis_range: DataRange1d = getattr(self.figure, side)
            axis_range.renderers, axis_range.range_padding = [invisible], 0.02
        self.written: list[tuple[Any, str]] = []
        self._contours()
        self._lines()
        tokens, starts = self._tokens(), self._starts()
        self._trained()
        self._now()
        if draggable:
            self._drag(tokens, starts)

    def _contours(self) -> None:
        self.contours = lines = self.figure.multi_line(
            "xs",
            "ys",
            source=self.sources["contours"],
            line_color={"field": "risk", "transform": LinearColorMapper(palette=RISK)},
            line_alpha=0.45,
            line_width=1,
        )
        self.figure.add_tools(HoverTool(renderers=[lines], tooltips=[("risk L", "@risk{0.0000}")], visible=False))

    def _lines(self) -> None:
        self.figure.multi_line(
            "xs", "ys", source=self.sources["band"], line_dash="dotted", line_width=1.6, color="#808080",
        )  # fmt: skip
        color = factor_cmap("kind", list(KIND_COLORS.values()), list(KIND_COLORS))
        lines = self.figure.multi_line(
            "xs", "ys", source=self.sources["rays"], line_dash="dashed", line_width="width", color=color,
        )  # fmt: skip
        tips = [("p_mm of", "@kind, α = @alpha"), ("‖p_mm‖", "@norm")]
        self.figure.add_tools(HoverTool(renderers=[lines], tooltips=tips, visible=False))
        self.runs = {}
        for rule, rule_color in RULE_COLORS.items():
            source = self.sources[f"run {rule}"]
            line = self.figure.multi_line("xs", "ys", source=source, line_width=1.8, color=rule_color, line_alpha=0.9)
            tips = [("", f"{rule} from start @start"), ("", "@how"), ("‖p‖ at its end", "@norm")]
            self.figure.add_tools(HoverTool(renderers=[line], tooltips=tips, visible=False))
            self.runs[rule] = line

    def _tokens(self) -> Any:
        marks = self.sources["marks"]
        hollow = {"source": marks, "fill_alpha": 0}
        ring, square = RULE_COLORS["normalized descent"], KIND_COLORS["LMM"]
        self.figure.scatter("x", "y", size="ring", line_color=ring, line_width=3, **hollow)
        self.figure.scatter("x", "y", size="square", marker="square", line_color=square, line_width=2, **hollow)
        glyphs = self.figure.scatter(
            "x",
            "y",
            source=self.sources["tokens"],
            size="size",
            marker="marker",
            fill_color={"field": "score", "transform": self.mapper},
            line_color="#808080",
            line_width=1,
            alpha="near",
            nonselection_alpha=0.5,
        )
        tips = [
            ("token", "@token of input @input, @is"),
            ("score", "@score"),
            ("margin", "@margin_says"),
            ("dual λ", "@dual_says"),
        ]
        self.figure.add_tools(HoverTool(renderers=[glyphs], tooltips=tips, visible=False))
        bar = ColorBar(color_mapper=self.mapper, title="score", width=9, padding=2, background_fill_alpha=0)
        self.figure.add_layout(bar, "right")
        self.written += [(bar, "major_label_text_color"), (bar, "title_text_color")]
        label = self.figure.text("x", "y", text="label", source=marks, x_offset=9, y_offset=-5, text_font_size="12px",
                                 text_color=INK["light"])  # fmt: skip
        self.written.append((label.glyph, "text_color"))
        return glyphs

    def _starts(self) -> Any:
        look = {"size": 13, "marker": "triangle", "fill_color": "#808080", "line_color": "#ffffff"}
        glyphs = self.figure.scatter("x", "y", source=self.sources["starts"], **look)
        tips = [("start", "@start, ‖p(0)‖ = @norm")]
        self.figure.add_tools(HoverTool(renderers=[glyphs], tooltips=tips, visible=False))
        return glyphs

    def _trained(self) -> None:
        look = {"size": 17, "marker": "diamond", "fill_color": RULE_COLORS["flow"], "line_color": "#ffffff"}
        self.figure.line("x", "y", source=self.sources["trained"], line_color=RULE_COLORS["flow"], line_dash="dashed")
        glyphs = self.figure.scatter("x", "y", source=self.sources["trained"], **look)
        tips = [("trained", "@name of norm @norm"), ("selects", "tokens @selects")]
        self.figure.add_tools(HoverTool(renderers=[glyphs], tooltips=tips, visible=False))

    def _now(self) -> None:
        self.figure.scatter("x", "y", source=self.sources["now"], size=11, marker="circle_cross",
                            fill_alpha=0, line_color=RULE_COLORS["flow"], line_width=2.5)  # fmt: skip

    def _drag(self, tokens: Any, starts: Any) -> None:
        tool = PointDrawTool(renderers=[tokens, starts], add=False, description="drag a token or a start")
        self.figure.add_tools(tool)
        self.figure.toolbar.active_drag = tool
        both = [self.sources[name] for name in self.moved]
        self.figure.js_on_event(Tap, CustomJS(args={"sources": both}, code=LET_GO))
        for name in ("tokens", "starts"):
            source = self.sources[name]
            source.js_on_change("change", CustomJS(args={"moved": self.moved[name], "often": OFTEN}, code=ON_THE_WAY))

    def scale_scores(self, scores: Sequence[float]) -> None:
        """Set the range of the colours from the lowest to the highest score."""
        low, high = min(scores), max(scores)
        self.mapper.update(low=low, high=high if high > low else low + 1)

    def name_axes(self, view: View) -> None:
        """Name the two axes after the directions of the plane."""
        prompt = "p" if view.query is None else "W z"
        for axis, name in zip((self.figure.xaxis[0], self.figure.yaxis[0]), view.names, strict=True):
            plain = f"coordinate {name}" if name.isdigit() else name
            axis.axis_label = f"{plain} of tokens ({prompt}: × {1 / view.unit:.3g})"
