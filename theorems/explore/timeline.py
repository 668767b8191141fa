"""The timeline of a run: softmax weights and margins against ‖p‖ or steps, with a slider and a play button.

The browser draws the timeline without a server, from the numbers of :func:`theorems.explore.time_columns.frames`, so
the timeline works in files, too.
"""

from __future__ import annotations

from typing import Any

from bokeh.models import (
    Column,
    ColumnDataSource,
    CustomJS,
    Div,
    HoverTool,
    RadioButtonGroup,
    Range1d,
    Row,
    Slider,
    Span,
    Toggle,
)
from bokeh.plotting import figure

COLORS = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#808080", "#9467bd"]
"""Colours of the tokens of an input, in turn."""
FRAME = 60
"""Milliseconds from one point of a run to the next while it plays."""

SHOW = """
const f = frames.data, n = f.norm.length;
if (n == 0) return;
const last = n - 1, old = slider.end;
if (old != last) slider.setv({end: Math.max(last, 1), value: Math.round(slider.value / old * last)});
const k = Math.min(slider.value, last), x = by.active == 0 ? f.norm : f.step, tokens = f.weights[0].map((_, t) => t);
const curves = rows => ({
  xs: tokens.map(() => x), ys: tokens.map(t => rows.map(row => row[t] ?? NaN)),
  label: tokens.map(t => 'token ' + t), color: tokens.map(t => colors[t % colors.length]),
});
if (cb_obj !== slider) {
  weights.data = curves(f.weights); margins.data = curves(f.margins);
  for (const range of across) range.setv({start: Math.min(...x), end: Math.max(...x) || 1});
  const all = f.margins.flat().filter(y => y != null && !Number.isNaN(y));
  const low = Math.min(0, ...all), high = Math.max(0, ...all);
  up.setv({start: low - 0.05 * (high - low || 1), end: high + 0.05 * (high - low || 1)});
}
for (const axis of axes) axis.axis_label = by.active == 0 ? by.labels[0].slice(8) : 'step';
for (const span of spans) span.location = x[k];
now.data = {x: [f.x[k]], y: [f.y[k]]};
const short = y => y == null || Number.isNaN(y) ? '' : Number(y).toPrecision(3);
const cells = values => values.map(y => '<td>' + y + '</td>').join('');
const row = (name, values) => '<tr><th>' + name + '</th>' + cells(values) + '</tr>';
const weight = row('softmax weight', f.weights[k].map(short)), margin = row('margin', f.margins[k].map(short));
const caption = by.labels[0].slice(8) + ' = ' + short(f.norm[k]) + ', step ' + f.step[k];
said.text = '<div class="scroll"><table><caption>' + caption + '</caption>' + row('token', tokens)
  + weight + margin + '</table></div>';
"""
PLAY = """
clearInterval(cb_obj.timer);
cb_obj.label = cb_obj.active ? 'Pause' : 'Play';
if (!cb_obj.active) return;
if (slider.value >= slider.end) slider.value = 0;
cb_obj.timer = setInterval(() => {
  if (slider.value >= slider.end) cb_obj.active = false; else slider.value += 1;
}, pace);
"""


class Timeline:
    """Slider, plots of weights and margins, and a table of their values at the slider's point.

    Attributes:
        column: the model that contains the timeline.
        show: callback that redraws the timeline; to be run when the document is ready.
        title: the text that names the run.
    """

    def __init__(self, sources: dict[str, ColumnDataSource]) -> None:
        """Make the widgets and plots for the columns, and connect them to scripts in the browser."""
        self.title = Div(text="")
        look = {"sizing_mode": "stretch_width", "margin": (5, 22, 5, 5)}  # the slider's handle is wider than its end
        self.slider = Slider(start=0, end=100, value=100, step=1, title="point of the run", **look)
        self.play = Toggle(label="Play", width=90)
        self.by = RadioButtonGroup(labels=["against ‖p‖", "against steps"], active=0)
        caption = Div(text="", sizing_mode="stretch_width")
        plots, spans = [], []
        for name, title in (
            ("weights", "softmax weights"),
            ("margins", "margin (k_α − k_t)·p/‖p‖"),
        ):
            plot, span = _curves(sources[name], title)
            plots.append(plot)
            spans.append(span)
        arguments: dict[str, Any] = {
            "frames": sources["frames"],
            "weights": sources["weights"],
            "margins": sources["margins"],
            "now": sources["now"],
            "slider": self.slider,
            "by": self.by,
            "axes": [plot.xaxis[0] for plot in plots],
            "spans": spans,
            "across": [plot.x_range for plot in plots],
            "up": plots[1].y_range,
            "said": caption,
            "colors": COLORS,
        }
        self.show = CustomJS(args=arguments, code=SHOW)
        self.slider.js_on_change("value", self.show)
        self.by.js_on_change("active", self.show)
        sources["frames"].js_on_change("data", self.show)
        self.play.js_on_change("active", CustomJS(args={"slider": self.slider, "pace": FRAME}, code=PLAY))
        self.column = Column(
            self.title,
            Row(self.play, self.by, sizing_mode="stretch_width", styles={"flex-wrap": "wrap"}),
            self.slider,
            caption,
            Row(*plots, sizing_mode="stretch_width", styles={"flex-wrap": "wrap"}),
            sizing_mode="stretch_width",
        )

    def name_norm(self, symbol: str) -> None:
        """Set the symbol of the norm on the axes: ‖p‖ or ‖W‖_F."""
        self.by.labels = [f"against {symbol}", self.by.labels[1]]


def _curves(source: ColumnDataSource, title: str) -> tuple[Any, Span]:
    plot = figure(
        title=title,
        height=240,
        min_width=300,
        sizing_mode="stretch_width",
        styles={"flex": "1 1 18rem"},
        tools="save",
        toolbar_location=None,
        x_axis_label="‖p‖",
        # The range is set when the curves are, since an empty plot has no range.
        x_range=Range1d(0, 1),
        y_range=Range1d(-0.03, 1.03),
        background_fill_alpha=0,
    )
    lines = plot.multi_line("xs", "ys", source=source, line_color="color", line_width=2)
    plot.add_tools(HoverTool(renderers=[lines], tooltips=[("", "@label"), ("", "$y{0.0000} at $x{0.00}")]))
    span = Span(location=0, dimension="height", line_color="#808080", line_dash="dashed", line_width=1.5)
    plot.add_layout(span)
    return plot, span
