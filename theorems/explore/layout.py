"""Layout of the page as Bokeh models: pictures, and controls that need a server."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bokeh.document import Document
from bokeh.events import DocumentReady
from bokeh.models import Column, ColumnDataSource, Div, Row, UIElement

from theorems.explore.columns import EMPTY, sources_of
from theorems.explore.controls import Controls
from theorems.explore.exact_solutions import Solved
from theorems.explore.matrices import matrices_figure
from theorems.explore.page_style import ink_callback, style_sheet
from theorems.explore.picture_parts import Part
from theorems.explore.plane import Plane
from theorems.explore.state import State
from theorems.explore.timeline import Timeline
from theorems.explore.verdict_tables import legend_html

LEFT, RIGHT = {"flex": "1 1 24rem", "min-width": "0"}, {"flex": "1 1 24rem", "min-width": "0"}
WRAP = {"flex-wrap": "wrap", "gap": "1rem"}
HEAD = (
    "<h1>{title}</h1><p>{hint}Softmax attention trained with gradient descent selects tokens as a hard-margin SVM does:"
    " the direction of the prompt p turns to p_mm.</p>"
)
DRAG = "Drag a token or a start and see what the theorems say. "


class Layout:
    """The models of the page.

    Attributes:
        sources: columns by name, see :data:`theorems.explore.columns.EMPTY`.
        plane, timeline: the pictures.
        controls: the controls; None in a file.
        head, now, words, assumptions, verdicts, status: texts as HTML: title; tokens selected now; description of the
            plane; assumptions; verdicts; summary of verdicts or an error.
        root: the model that contains all others.
    """

    def __init__(self, state: State, *, served: bool) -> None:
        """Make pictures and texts with empty columns, and controls if the page is served."""
        self.sources = {
            name: ColumnDataSource({column: [] for column in columns}, name=name) for name, columns in EMPTY.items()
        }
        self.plane = Plane(self.sources, draggable=served)
        self.timeline = Timeline(self.sources)
        self.controls = Controls(self.sources, self.plane) if served else None
        self.matrices, titles, self.fit = matrices_figure(self.sources)
        self.written = [*self.plane.written, (titles, "text_color")]
        self.head, self.now, self.words, self.assumptions, self.verdicts, self.status = (
            Div(text="", sizing_mode="stretch_width", name=name)
            for name in ("head", "now", "words", "assumptions", "verdicts", "status")
        )
        self.status.styles = {
            "min-height": "2.6rem"
        }  # an empty text keeps its place, so that the page does not shift under the pointer
        self.legend = Div(text="", sizing_mode="stretch_width")
        self.root = self._arrange()
        self.label_parameter(state)

    def _arrange(self) -> Column:
        picture = Column(self.plane.figure, self.words, self.legend, sizing_mode="stretch_width", styles=LEFT)
        controls = [] if self.controls is None else [self.controls.edit]
        beside = Column(*controls, self.timeline.column, self.matrices, sizing_mode="stretch_width", styles=RIGHT)
        pictures_and_controls = Row(picture, beside, sizing_mode="stretch_width", styles=WRAP)
        load = [] if self.controls is None else [self.controls.load]
        children = [self.head, *load, self.now, self.status, pictures_and_controls, self.verdicts, self.assumptions]
        return Column(*children, sizing_mode="stretch_width")

    def draw(self, part: Part, solved: Solved, without: Sequence[str] = ()) -> None:
        """Draw a part of the picture, except for the sources named in ``without``."""
        for name, columns in sources_of(part, solved.view.extent).items():
            if name not in without:
                self.sources[name].data = columns
        if "tokens" in part.columns:
            self.plane.scale_scores(part.columns["tokens"]["score"])
        if "plane" in part.words:
            self.words.text = f"<p>{part.words['plane']}</p>"
            self.plane.name_axes(solved.view)
        if "now" in part.words:
            self.now.text = f"<p><strong>{escape(part.words['now'])}</strong></p>"
        if "run" in part.words:
            self.timeline.title.text = f"<h2>The run in time</h2><p>{part.words['run']}</p>"

    def label_parameter(self, state: State) -> None:
        """Name the trained parameter, p or W, in the legend and on the timeline."""
        trains_weights = len(state.shape) == 2
        self.legend.text = legend_html(trains_weights)
        self.timeline.name_norm("‖W‖_F" if trains_weights else "‖p‖")
        self.matrices.visible = state.case.queried is not None

    def set_title(self, state: State) -> None:
        """Set title and introduction of the page."""
        problem = state.case.problem
        title = f"{state.case.name}: n = {problem.n}, T = {problem.T}, d = {problem.d}; {problem.loss.name} loss"
        self.head.text = HEAD.format(title=escape(title), hint=DRAG if self.controls else "")

    def add_to(self, document: Document) -> None:
        """Add the page to a document."""
        sheet = style_sheet()
        for model in self.root.select({"type": UIElement}):
            model.stylesheets = [*model.stylesheets, sheet]
        document.add_root(self.root)  # last, as every change of a model within a document visits all models
        ready = [ink_callback(self.written), self.timeline.show, self.fit]
        document.js_on_event(DocumentReady, *ready)
