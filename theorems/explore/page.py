"""A served page: it draws a new state at once, and verifies statements after a pause without changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from html import escape
from typing import Any

import numpy as np
from bokeh.document import Document

from reference_attention.errors import InvalidInput
from theorems.explore.controls import Controls
from theorems.explore.exact_solutions import Solved
from theorems.explore.layout import Layout
from theorems.explore.link import pack
from theorems.explore.picture_parts import Part, parts_of
from theorems.explore.plane_view import View
from theorems.explore.state import REACHES, State
from theorems.explore.verdict_tables import assumptions_html, error_html, statements_html, summary_text
from theorems.explore.verdicts import StatementOnData, StatementVerdict, assumptions_of, plan, work_through
from theorems.explore.worker_thread import Cancelled, Latest
from theorems.run.findings import NamedFinding
from theorems.run.pool import Pool

PAUSE = 0.25
"""Seconds that must pass without a change before statements are verified; during a drag only the picture is drawn."""
ON_THE_WAY = ("tokens", "starts", "corners")
"""Sources that the browser updates itself during a drag."""


def _still_previous(count: int) -> str:
    return (
        "1 verdict still refers to the previous data"
        if count == 1
        else f"{count} verdicts still refer to the previous data"
    )


class Page:
    """A page in a tab of the browser.

    Attributes:
        state: the data and the display settings.
        document: the Bokeh document of the page.
        layout, controls: the Bokeh models of the page.
        view: the plane in which the tokens are drawn.
        is_writing: whether the page is changing its models, so that listeners ignore the change.
    """

    def __init__(self, document: Document, state: State) -> None:
        """Lay out the page, start its worker threads, and draw the first part of the picture."""
        self.state, self.document = state, document
        self.layout = Layout(state, served=True)
        assert self.layout.controls is not None
        self.controls: Controls = self.layout.controls
        self.is_writing = False
        self._error, self._progress = "", ""
        self._verified: object = None
        self._units: list[StatementOnData] = []
        self._said: dict[int, StatementVerdict] = {}
        self._pool = Pool(1)
        self._pictures, self._statements = Latest(self._deliver), Latest(self._deliver, PAUSE)
        part, solved = next(parts_of(state))
        self.view: View = solved.view
        self._draw(part, solved)

    def begin(self, error: str = "") -> None:
        """Add the page to the document, after all listeners are connected.

        Bokeh reports no click on a widget to listeners that are connected later.
        """
        self.layout.add_to(self.document)
        self.change(self.state, error)

    def change(self, state: State, error: str = "", *, moving: bool = False) -> None:
        """Show a new state, and drop computations for the previous one.

        Args:
            state: the state.
            error: a message about an action that failed; "" if none did.
            moving: whether something is being dragged, so that the plane is kept.
        """
        is_other = state.case is not self._verified
        self.state, self._error = state, error
        plane = self.view if moving else None

        def pictures(cancelled: Cancelled) -> Iterator[tuple[Part, Solved]]:
            for part in parts_of(state, plane):
                yield part
                if cancelled():
                    return

        if is_other:
            self._statements.drop()
        self._pictures.ask(pictures, partial(self._take_part, moving), self._fail)
        self._say(_still_previous(len(self._said)) if is_other and self._said else self._progress)
        if not moving:
            with self.writing():
                self._show_state()

    def open(self, state: State) -> None:
        """Show the state of other data."""
        with self.writing():
            self.controls.which.value = ""
        self._units, self._said = [], {}
        self.layout.verdicts.text = self.layout.assumptions.text = ""
        self.layout.label_parameter(state)
        self.change(state)

    def refuse(self, error: InvalidInput) -> None:
        """Show an error message and keep the state."""
        self.change(self.state, str(error))

    def _deliver(self, call: Callable[[], None]) -> None:
        """Schedule a call in the thread of the document; do nothing if the tab was closed."""
        with suppress(AttributeError, RuntimeError):
            self.document.add_next_tick_callback(call)

    def close(self) -> None:
        """Stop the worker threads, since the tab was closed."""
        self._pictures.close()
        self._statements.close()
        self._pool.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Mark changes of models within the block as made by the page, not by the user."""
        before, self.is_writing = self.is_writing, True
        try:
            yield
        finally:
            self.is_writing = before

    def show_place(self) -> None:
        """Show the coordinates of the selected token or start in the widgets."""
        controls, (kind, number) = self.controls, self.selection
        with self.writing():
            is_start = kind == "start"
            vector = self.view.attention_vector(self.state.starts[number]) if is_start else self.state.tokens[number]
            place = self.view.place_tokens(vector)
            controls.x.value, controls.y.value = float(place[0]), float(place[1])
            controls.score.disabled = is_start or self.state.scores_follow
            controls.score.value = None if is_start else float(self.state.case.problem.scores[number])

    @property
    def selection(self) -> tuple[str, tuple[int, ...]]:
        """Return the selected object: ("token", (i, t)), or ("start", its number)."""
        kind, _, number = self.controls.which.value.partition(" ")
        return kind, tuple(int(k) for k in number.split("·"))

    def _statement_steps(self, state: State, cancelled: Cancelled) -> Iterator[Any]:
        yield assumptions_of(state.case)
        units = plan(state.case)
        yield units
        yield from work_through(self._pool, units, cancelled)

    def _take_part(self, moving: bool, drawing: tuple[Part, Solved] | None) -> None:
        if drawing is not None:
            self._draw(*drawing, moving=moving)
        elif self._verified is not self.state.case:
            self._verified = self.state.case
            self._statements.ask(partial(self._statement_steps, self.state), self._take_verdicts, self._fail)

    def _draw(self, part: Part, solved: Solved, *, moving: bool = False) -> None:
        with self.writing():
            self.layout.draw(part, solved, ON_THE_WAY if moving else ())
            if "tokens" in part.columns and not moving:
                self.view = solved.view
                self._show_choices(solved)
                if self.controls.which.value:
                    self.show_place()

    def _take_verdicts(self, answer: Any) -> None:
        if not answer:
            return
        if isinstance(answer[0], NamedFinding):
            self.layout.assumptions.text = assumptions_html(answer)
        elif isinstance(answer[0], StatementOnData):
            self._units, self._said = answer, {}
        else:
            self._said |= dict(answer)
            self.layout.verdicts.text = statements_html(self._units, self._said)
            self._say(escape(summary_text(self._units, self._said)))

    def _say(self, progress: str) -> None:
        self._progress = progress
        self.layout.status.text = error_html(self._error) + f"<p>{progress}</p>"

    def _fail(self, error: Exception) -> None:
        self._error = " ".join(str(error).split()) or type(error).__name__
        self._say("")

    def _show_state(self) -> None:
        state, controls = self.state, self.controls
        self.layout.set_title(state)
        problem = state.case.problem
        names = [f"token {i}·{t}" for i, t in np.ndindex(problem.n, problem.T)]
        starts = [f"start {k}" for k in range(len(state.starts))]
        before = controls.which.value
        controls.which.options = [*names, *starts]
        controls.which.value = before if before in starts else f"token {state.token[0]}·{state.token[1]}"
        self.show_place()
        controls.starts.value = len(starts)
        controls.from_start.options = [str(k) for k in range(len(starts))]
        controls.from_start.value = str(state.start)
        controls.rule.value = state.rule
        controls.reach.active = REACHES.index(state.reach)
        controls.link.data = {"state": [pack(state)]}

    def _show_choices(self, solved: Solved) -> None:
        listed = []
        for choice in solved.choices:
            kind = "optimal" if choice.name == "optimal" else "locally optimal" if choice.locally_optimal else "shown"
            none = "" if choice.solution is not None else ", no p_mm"
            alpha = str(choice.alpha.tolist())
            listed.append((alpha, f"{alpha} {kind}{none}"))
        self.controls.alpha.options = listed
        self.controls.alpha.value = str(solved.about.alpha.tolist())
