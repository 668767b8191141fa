"""User actions on a page (a drag, a number, a choice, a file), turned into a new State or an error message."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource

from reference_attention.errors import InvalidInput
from theorems.explore import downloads
from theorems.explore.controls import CHOOSE
from theorems.explore.data_sources import state_in_file, state_named
from theorems.explore.page import Page
from theorems.explore.state import REACHES, State

FILES = {
    ".npz": ("{}.npz", "application/octet-stream", downloads.as_npz),
    ".json": ("{}.json", "application/json", downloads.as_json),
    "pytest": ("test_{}.py", "text/x-python", downloads.as_test),
}
"""For each button that saves a file: the file's name, media type and content."""
SAME = 1e-12
"""Distance, as a share of the picture's extent, below which a token counts as not moved."""

Changed = Callable[[str, Any, Any], None]


def connect(page: Page) -> None:
    """Connect the widgets and sources of the page to their handlers."""
    controls, sources = page.controls, page.layout.sources
    for name in ("tokens", "starts"):
        sources[name].on_change("data", _on_user_change(page, partial(_drop, page, name)))
        sources[name].selected.on_change("indices", _on_user_change(page, partial(_ring, page, name)))
        page.layout.plane.moved[name].on_change("data", _on_user_change(page, partial(_move, page, name)))
    sources["rows"].on_change("data", _on_user_change(page, partial(_edit_row, page)))
    controls.which.on_change("value", _on_user_change(page, partial(_select, page)))
    for widget in (controls.x, controls.y):
        widget.on_change("value", _on_user_change(page, partial(_place, page)))
    controls.score.on_change("value", _on_user_change(page, partial(_score, page)))
    controls.starts.on_change("value", _on_user_change(page, lambda n: page.change(page.state.with_starts(int(n)))))
    controls.alpha.on_change("value", _on_user_change(page, partial(_choose_alpha, page)))
    controls.reach.on_change("active", _on_user_change(page, lambda k: page.change(page.state.but(reach=REACHES[k]))))
    controls.rule.on_change("value", _on_user_change(page, lambda rule: page.change(page.state.but(rule=rule))))
    controls.from_start.on_change("value", _on_user_change(page, lambda k: page.change(page.state.but(start=int(k)))))
    for choice in (controls.dataset, controls.counterexample):
        choice.on_change("value", _on_user_change(page, partial(_load_named, page)))
    controls.upload.on_change("filename", _on_user_change(page, partial(_load_file, page)))
    for kind, button in controls.save.items():
        button.on_click(partial(_save, page, kind))


def _on_user_change(page: Page, act: Callable[[Any], None]) -> Changed:
    """Return a listener that calls ``act`` with a value that the user has set, and ignores values set by the page.

    An InvalidInput that ``act`` raises is shown on the page.
    """

    def listener(attribute: str, old: Any, new: Any) -> None:
        if page.is_writing or new is None:
            return
        try:
            act(new)
        except InvalidInput as error:
            page.refuse(error)

    return listener


def _move(page: Page, name: str, places: dict[str, Any]) -> None:
    state = _with_places(page, name, places)
    if state is not None:
        page.change(state, moving=True)


def _drop(page: Page, name: str, data: dict[str, Any]) -> None:
    """Show the state after a drag has ended."""
    page.change(_with_places(page, name, data) or page.state)


def _edit_row(page: Page, data: dict[str, Any]) -> None:
    """Set the score that the user has edited in the table."""
    now = page.state.case.problem.scores
    scores = np.asarray(data["score"], dtype=np.float64)
    edited = np.argwhere(scores.reshape(now.shape) != now) if scores.size == now.size else ()
    for i, t in edited:
        page.change(page.state.with_score(int(i), int(t), float(scores.reshape(now.shape)[i, t])))


def _with_places(page: Page, name: str, places: dict[str, Any]) -> State | None:
    """Return the state with the dragged token or start moved; None if none has moved."""
    state, view = page.state, page.view
    new = np.stack([np.asarray(places[axis], dtype=np.float64) for axis in ("x", "y")], axis=-1)
    previous = view.place_tokens(state.tokens).reshape(-1, 2) if name == "tokens" else view.place_prompts(state.starts)
    if new.shape != previous.shape:
        return None
    apart = np.abs(new - previous).max(axis=1)
    k = int(apart.argmax())
    if apart[k] <= SAME * view.extent:
        return None
    if name == "starts":
        return state.with_start(k, view.move_prompt(state.starts[k], new[k]))
    i, t = divmod(k, state.case.problem.T)
    return state.with_token(i, t, view.move_token(state.tokens[i, t], new[k])).but(token=(i, t))


def _ring(page: Page, name: str, indices: list[int]) -> None:
    """Select the token that the user has clicked or begun to drag; on release show its input in front."""
    if len(indices) != 1:
        page.change(page.state)
        return
    with page.writing():
        if name == "starts":
            page.controls.which.value = f"start {indices[0]}"
        else:
            i, t = divmod(indices[0], page.state.case.problem.T)
            page.controls.which.value = f"token {i}·{t}"
            page.state = page.state.but(token=(i, t))
    page.change(page.state, moving=True)
    page.show_place()


def _select(page: Page, choice: str) -> None:
    kind, number = page.selection
    if kind == "start":
        page.show_place()
    else:
        page.change(page.state.but(token=number))


def _place(page: Page, value: float) -> None:
    """Move the selected token or start to typed coordinates.

    For a start these are the coordinates of p(0); the picture draws prompts in another scale.
    """
    kind, number = page.selection
    place = np.array([page.controls.x.value, page.controls.y.value], dtype=np.float64)
    if kind == "start":
        k = number[0]
        page.change(page.state.with_start(k, page.view.move_prompt(page.state.starts[k], page.view.unit * place)))
    else:
        i, t = number
        page.change(page.state.with_token(i, t, page.view.move_token(page.state.tokens[i, t], place)))


def _score(page: Page, value: float) -> None:
    kind, number = page.selection
    if kind == "token":
        i, t = number
        page.change(page.state.with_score(i, t, float(value)))


def _choose_alpha(page: Page, text: str) -> None:
    page.change(page.state.but(alpha=tuple(json.loads(text))))


def _load_named(page: Page, name: str) -> None:
    if name == CHOOSE:
        return
    state = state_named(name)
    with page.writing():
        for choice in (page.controls.dataset, page.controls.counterexample):
            choice.value = name if name in choice.options else CHOOSE
    page.open(state)


def _load_file(page: Page, name: str) -> None:
    content = page.controls.upload.value
    if isinstance(name, str) and isinstance(content, str) and name:
        page.open(state_in_file(name, base64.b64decode(content)))


def _save(page: Page, kind: str) -> None:
    """Give the browser a file to save."""
    name, mime_type, make = FILES[kind]
    content = base64.b64encode(make(page.state.case)).decode()
    file: ColumnDataSource = page.controls.file
    file.data = {"content": [content], "name": [name.format(downloads.stem(page.state.case))], "kind": [mime_type]}
