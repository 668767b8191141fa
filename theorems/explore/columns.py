"""From the numbers of a picture to the columns that Bokeh draws: markers, sizes, one source per rule."""

from __future__ import annotations

from theorems.explore.picture import Part
from theorems.explore.plane_columns import Columns
from theorems.explore.runs import RULES

MARKERS = {"chosen": "star", "neighbour": "circle", "other": "circle"}
SIZES = {"chosen": 20.0, "neighbour": 12.0, "other": 12.0}
RING, SQUARE = 26.0, 19.0
"""Of the selected token, and around SVM-neighbours."""
EMPTY: dict[str, tuple[str, ...]] = {
    "tokens": ("input", "token", "x", "y", "score", "is", "margin", "dual", "near", "marker", "size"),
    "rows": ("input", "token", "score", "is", "margin", "dual", "k1", "k2"),
    "marks": ("x", "y", "ring", "square", "label"),
    "starts": ("start", "x", "y", "norm"),
    "rays": ("xs", "ys", "kind", "alpha", "norm", "width"),
    "band": ("xs", "ys", "edge"),
    "contours": ("xs", "ys", "risk"),
    **{f"run {rule}": ("xs", "ys", "rule", "start", "how", "norm") for rule in RULES},
    "frames": ("step", "norm", "x", "y", "weights", "margins"),
    "weights": ("xs", "ys", "label", "color", "dash"),
    "margins": ("xs", "ys", "label", "color", "dash"),
    "now": ("x", "y"),
    "corners": ("x", "y"),
    "matrices": ("x", "y", "value", "shown", "what"),
    "titles": ("x", "y", "text"),
}
"""The columns of every source, so that a document can be made before there are numbers."""


def sources_of(part: Part, extent: float) -> dict[str, Columns]:
    """What the sources are given when a part is ready."""
    made = {name: columns for name, columns in part.columns.items() if name in EMPTY}
    if "tokens" in part.columns:
        made |= _tokens(part.columns["tokens"])
        made["corners"] = {"x": [-extent, extent], "y": [-extent, extent]}
    if "runs" in part.columns:
        runs = part.columns["runs"]
        for rule in RULES:
            rows = [k for k, one in enumerate(runs["rule"]) if one == rule]
            made[f"run {rule}"] = {name: [column[k] for k in rows] for name, column in runs.items()}
    return made


def _tokens(held: Columns) -> dict[str, Columns]:
    """What can be dragged, what is drawn around it, and the table."""
    n = len(held["x"])
    roles = held["is"]
    drawn = {name: held[name] for name in EMPTY["tokens"] if name in held}
    drawn |= {"marker": [MARKERS[role] for role in roles], "size": [SIZES[role] for role in roles]}
    square = [SQUARE if role == "neighbour" else 0.0 for role in roles]
    ring = [RING if size else 0.0 for size in held["ring"]]
    # Where every token has a name the picture is full of them.
    label = held["label"] if n <= MOST_LABELS else [""] * n
    marks = {"x": held["x"], "y": held["y"], "ring": ring, "square": square, "label": label}
    rows = {name: held.get(name, [None] * n) for name in EMPTY["rows"]}
    return {"tokens": drawn, "marks": marks, "rows": rows}


MOST_LABELS = 40
