"""Columns of the Bokeh data sources of a picture, with markers and sizes of tokens, and one source per optimiser."""

from __future__ import annotations

from theorems.explore.picture_parts import Part
from theorems.explore.plane_columns import TOKEN, Columns
from theorems.explore.runs import RULES

MARKERS = {"chosen": "star", "neighbour": "circle", "other": "circle"}
SIZES = {"chosen": 20.0, "neighbour": 12.0, "other": 12.0}
RING, SQUARE = 26.0, 19.0
"""Sizes, in pixels, of the ring around the selected token, and of the squares around SVM-neighbours."""
EMPTY: dict[str, tuple[str, ...]] = {
    "tokens": (*(name for name in TOKEN if name != "label"), "near", "marker", "size"),
    "rows": ("input", "token", "score", "is", "margin", "dual", "k1", "k2"),
    "marks": ("x", "y", "ring", "square", "label"),
    "starts": ("start", "x", "y", "norm"),
    "trained": ("x", "y", "name", "norm", "selects"),
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
"""Names of the columns of every source, for a document that is laid out before its numbers are computed."""


def sources_of(part: Part, extent: float) -> dict[str, Columns]:
    """Return the columns that a part of the picture fills, by source; ``extent`` is the distance from 0 to the edge."""
    sources = {name: columns for name, columns in part.columns.items() if name in EMPTY}
    if "tokens" in part.columns:
        sources |= _tokens(part.columns["tokens"])
        sources["corners"] = {"x": [-extent, extent], "y": [-extent, extent]}
    if "runs" in part.columns:
        runs = part.columns["runs"]
        for rule in RULES:
            rows = [k for k, name in enumerate(runs["rule"]) if name == rule]
            sources[f"run {rule}"] = {name: [column[k] for k in rows] for name, column in runs.items()}
    return sources


def _tokens(columns: Columns) -> dict[str, Columns]:
    """Return the columns of the tokens, of the marks around them, and of the table."""
    n = len(columns["x"])
    roles = columns["is"]
    token_columns = {name: columns[name] for name in EMPTY["tokens"] if name in columns}
    token_columns |= {"marker": [MARKERS[role] for role in roles], "size": [SIZES[role] for role in roles]}
    square = [SQUARE if role == "neighbour" else 0.0 for role in roles]
    ring = [RING if size else 0.0 for size in columns["ring"]]
    # With more than MOST_LABELS tokens, labels would fill the picture.
    label = columns["label"] if n <= MOST_LABELS else [""] * n
    marks = {"x": columns["x"], "y": columns["y"], "ring": ring, "square": square, "label": label}
    rows = {name: columns.get(name, [None] * n) for name in EMPTY["rows"]}
    return {"tokens": token_columns, "marks": marks, "rows": rows}


MOST_LABELS = 40
