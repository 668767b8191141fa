"""Controls of a served page, for mouse or keyboard: choice of data, tokens and starts, display, files to save."""

from __future__ import annotations

from bokeh.models import (
    Button,
    CheckboxButtonGroup,
    Column,
    ColumnDataSource,
    CustomJS,
    DataTable,
    Div,
    FileInput,
    NumberEditor,
    NumberFormatter,
    RadioButtonGroup,
    Row,
    Select,
    Spinner,
    TableColumn,
)

from theorems.explore.data_sources import counterexamples, datasets
from theorems.explore.plane import Plane
from theorems.explore.runs import RULES
from theorems.explore.state import MOST_STARTS, REACHES

WRAP = {"flex-wrap": "wrap", "gap": "0.5rem", "align-items": "end"}
CHOOSE = "…"
"""Entry of a list that means that nothing is chosen."""
SAVE = """
const bytes = Uint8Array.from(atob(file.data.content[0]), c => c.charCodeAt(0));
const link = document.createElement('a');
link.href = URL.createObjectURL(new Blob([bytes], {type: file.data.kind[0]}));
link.download = file.data.name[0];
link.click();
setTimeout(() => URL.revokeObjectURL(link.href), 10000);
"""
PICTURE = """
const view = Bokeh.index.find_one(plot), link = document.createElement('a');
link.href = view.export('png').canvas.toDataURL('image/png');
link.download = 'plane.png';
link.click();
"""
ADDRESS = """
const address = new URL(location.href), state = link.data.state[0];
if (state) address.searchParams.set('state', state); else address.searchParams.delete('state');
history.replaceState(null, '', address);
"""
COPY = """
navigator.clipboard?.writeText(location.href).then(() => { cb_obj.origin.label = 'Link copied' }, () => {});
"""


class Controls:
    """The widgets of a served page.

    Attributes:
        load: a row of widgets that load and save data.
        edit: the widgets that change tokens and starts, and what is shown.
    """

    def __init__(self, sources: dict[str, ColumnDataSource], plane: Plane) -> None:
        """Make the widgets, and connect those that the browser handles without the server."""
        self.dataset = Select(title="named data", options=[CHOOSE, *datasets()], value=CHOOSE, width=170)
        recorded = [CHOOSE, *counterexamples()]
        self.counterexample = Select(title="recorded counterexample", options=recorded, value=CHOOSE, width=330)
        self.upload = FileInput(accept=".npz,.json", title="your file, .npz or .json", width=230)
        self.file = ColumnDataSource({"content": [""], "name": [""], "kind": [""]})
        self.link = ColumnDataSource({"state": [""]})
        self.save = {kind: Button(label=kind, width=70) for kind in (".npz", ".json", "pytest")}
        self.file.js_on_change("data", CustomJS(args={"file": self.file}, code=SAVE))
        picture = Button(label="picture", width=70)
        picture.js_on_click(CustomJS(args={"plot": plane.figure}, code=PICTURE))
        copy = Button(label="link", width=90)
        copy.js_on_click(CustomJS(code=COPY))
        self.link.js_on_change("data", CustomJS(args={"link": self.link}, code=ADDRESS))
        saves = Row(Div(text="save as"), *self.save.values(), picture, copy, styles=WRAP)
        self.load = Row(self.dataset, self.counterexample, self.upload, saves, styles=WRAP, sizing_mode="stretch_width")
        self.load.tags = [self.file, self.link]  # Bokeh sends only models that the page contains to the browser

        self.which = Select(title="selected token or start", options=[], width=180)
        look = {"step": 0.05, "width": 110, "format": "0.[0000]"}
        self.x, self.y = Spinner(title="across", **look), Spinner(title="up", **look)
        self.score = Spinner(title="score", **look)
        self.starts = Spinner(title="starts", low=1, high=MOST_STARTS, step=1, width=70)
        self.alpha = Select(title="p_mm of α", options=[], width=260)
        self.reach = RadioButtonGroup(labels=[f"{reach:g}" for reach in REACHES], active=1)
        self.rule = Select(title="path shown by the slider", options=list(RULES), width=180)
        self.from_start = Select(title="from start", options=["0"], width=80)
        self.shown = CheckboxButtonGroup(labels=["risk", *RULES], active=[0, *range(1, 1 + len(RULES))])
        lines = [plane.contours, *(plane.runs[rule] for rule in RULES)]
        toggle = "lines.forEach((line, k) => { line.visible = cb_obj.active.includes(k) })"
        self.shown.js_on_change("active", CustomJS(args={"lines": lines}, code=toggle))
        self.table = _table(sources["rows"])
        # A table redraws its rows only if its view reports a change.
        again = CustomJS(args={"rows": self.table.view}, code="rows.change.emit()")
        sources["rows"].js_on_change("data", again)
        self.edit = Column(
            Row(self.which, self.x, self.y, self.score, self.starts, styles=WRAP, sizing_mode="stretch_width"),
            Row(self.alpha, self.rule, self.from_start, styles=WRAP, sizing_mode="stretch_width"),
            Row(Div(text="norm at the edge, in ‖p_mm‖"), self.reach, styles=WRAP, sizing_mode="stretch_width"),
            Row(Div(text="shown"), self.shown, styles=WRAP, sizing_mode="stretch_width"),
            self.table,
            sizing_mode="stretch_width",
        )


def _table(source: ColumnDataSource) -> DataTable:
    """Return the table of tokens, in which scores can be edited."""
    number = NumberFormatter(format="0.[0000]", nan_format="")
    columns = [
        TableColumn(field="input", title="input", width=50),
        TableColumn(field="token", title="token", width=50),
        TableColumn(field="score", title="score (edit)", editor=NumberEditor(step=0.05), formatter=number, width=90),
        TableColumn(field="is", title="is", width=80),
        TableColumn(field="margin", title="margin", formatter=number, width=70),
        TableColumn(field="dual", title="dual λ", formatter=number, width=70),
        TableColumn(field="k1", title="1", formatter=number, width=70),
        TableColumn(field="k2", title="2", formatter=number, width=70),
    ]
    return DataTable(
        source=source,
        columns=columns,
        editable=True,
        auto_edit=True,
        index_position=None,
        height=210,
        sizing_mode="stretch_width",
        reorderable=False,
    )
