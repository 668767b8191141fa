"""Drawing of an explanation: a run of training, paths of p in the plane as in Figure 1, or margins and weights."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.errors import InvalidInput
from reference_attention.svm.max_margin import MaxMargin
from theorems.benchmark.measurements import Limit
from theorems.explanations.facts import Facts
from theorems.explanations.prompt_scale import REACH, prompt_scale
from theorems.explanations.ragged_problem import beside
from theorems.explanations.sentences import headline
from theorems.figures import style
from theorems.figures.figure_files import FORMATS, as_file, check_matplotlib

PLANE, PANELS, RUN = (5.6, 5.6), (9.0, 4.0), (12.0, 4.0)
"""Width and height, in inches, of drawings in the plane, of the two panels, and of a run."""
BEYOND = 1.5
"""Least distance from 0 to the edge of a drawing, in units of the norm of the start."""
MARKERS = "os^Dv<>p*h"
LINES = 400
"""Largest number of tokens whose margins are drawn."""
FAINTEST = 1e-16
"""Smallest weight that is drawn."""


def check_kind(kind: str, option: str = "plot") -> None:
    """Check that a drawing can be made; messages name ``option``, with which the user asked for it.

    Raises:
        InvalidInput: ``kind`` is no supported kind of file, or matplotlib is not installed.
    """
    if kind not in FORMATS:
        raise InvalidInput(
            f"{option}: {kind!r} is not a supported file format; give a name that ends in {', '.join(FORMATS)}."
        )
    check_matplotlib(option)


def render_plot(facts: Facts, kind: str) -> bytes:
    """Return the drawing as the bytes of a file; equal explanations give equal bytes.

    Raises:
        InvalidInput: as :func:`check_kind`.
    """
    check_kind(kind)
    size, draw = (PLANE, _plane) if facts.case.problem.d == 2 else (PANELS, _panels)
    if facts.run is not None:
        size, draw = RUN, _run
    title = textwrap.fill(f"{facts.name}: {headline(facts)}", int(size[0] * 13))
    return as_file(size, title, lambda sheet: draw(sheet, facts), kind)


def _plane(sheet: Any, facts: Facts) -> None:
    """Draw paths of p as grey lines, max-margin directions dashed, tokens as markers with a shape per input."""
    axes = sheet.add_subplot()
    keys = facts.case.problem.keys
    reach = REACH * max(prompt_scale(facts.case, facts.optimal), float(np.linalg.norm(keys, axis=-1).max()))
    reach = max(reach, BEYOND * float(np.linalg.norm(facts.path.start)))
    paths = [_near(path.flow.points, reach) for path in (facts.path, *facts.others)]
    all_points = np.concatenate([keys.reshape(-1, 2), np.zeros((1, 2)), *paths])
    low, high = all_points.min(axis=0), all_points.max(axis=0)
    room = 0.08 * float((high - low).max())
    style.plane(axes, low[0] - room, high[0] + room, low[1] - room, high[1] + room)
    for points in paths:
        axes.plot(points[:, 0], points[:, 1], color=style.GREY, linewidth=1.0, zorder=2)
        axes.plot(*points[0], "o", color=style.GREY, markersize=3.5, zorder=4)
    for solution in _directions(facts):
        best = np.array_equal(solution.alpha, facts.optimal.alpha)
        style.ray(axes, solution.direction.tolist(), 10 * reach, style.BLUE if best else style.RED)
    for token in facts.tokens:
        color = style.BLUE if token.globally_optimal else style.RED if token.locally_optimal else style.ORANGE
        x, y = keys[token.input, token.token]
        shape, size = MARKERS[token.input % len(MARKERS)], 9 if token.selected else 5
        axes.plot(x, y, shape, color=color, markersize=size, markeredgecolor="white", zorder=5)
    axes.set_title("blue: optimal, GMM; red: locally optimal, LMM; selected tokens are large", fontsize=8.0)


def _run(sheet: Any, facts: Facts) -> None:
    """Draw the weight of tokens that are not chosen, the least margin and 1 − cos of a run against its steps."""
    run = facts.run
    assert run is not None
    selection, margin, cosine = sheet.subplots(1, 3)
    for i, off in enumerate(np.maximum(run.off, FAINTEST).T):
        selection.plot(run.steps, off, ".-", linewidth=1.0, markersize=3.0, label=f"input {i}")
    selection.set_title("weight of all other tokens, per input")
    margin.plot(run.steps, run.margins, ".-", color=style.RED, linewidth=1.2, markersize=3.0)
    margin.set_title("least margin divided by the norm")
    if run.largest is not None:
        margin.axhline(run.largest, color=style.BLUE, linestyle="--", linewidth=1.0)
        margin.set_title("least margin divided by the norm; dashed: largest possible")
        cosine.plot(run.steps, run.apart, ".-", color=style.RED, linewidth=1.2, markersize=3.0, label="run")
        cosine.plot(run.steps, run.flow_apart, "--", color=style.GREY, label="flow at the same norm")
        cosine.legend(fontsize=7.5, frameon=False)
        cosine.set_yscale("log")
    selection.set_yscale("log")
    cosine.set_title("1 − cos to the max-margin direction")
    for axes in (selection, margin, cosine):
        axes.set_xlabel("steps")
    if facts.case.problem.n <= 8:
        selection.legend(fontsize=7.5, frameon=False)


def _directions(facts: Facts) -> list[MaxMargin]:
    """Return the max-margin directions to draw: if all locally optimal α are known, the direction of each.

    If they are not known, return the directions of :attr:`Facts.choices` and of the tokens that the flows select.
    """
    if facts.locally_optimal is not None:
        return [choice.svm for choice in facts.locally_optimal if isinstance(choice.svm, MaxMargin)]
    solutions = [choice.svm for choice in facts.choices if isinstance(choice.svm, MaxMargin)]
    return solutions + [followed.limit.svm for followed in facts.others if isinstance(followed.limit, Limit)]


def _near(points: Float64[np.ndarray, "r 2"], reach: float) -> Float64[np.ndarray, "k 2"]:
    """Return the points of a path, (r, 2), up to the first one outside the disk of radius ``reach``."""
    outside = np.flatnonzero(np.linalg.norm(points, axis=1) > reach)
    return np.asarray(points[: outside[0] + 1] if outside.size else points)


def _panels(sheet: Any, facts: Facts) -> None:
    """Draw margins of p/‖p‖ on the left, weights of tokens that are not selected on the right; both against ‖p‖."""
    flow, problem = facts.path.flow, facts.case.problem
    positive = flow.norms > 0
    norms, points = flow.norms[positive], flow.points[positive]
    left, right = sheet.subplots(1, 2)
    tokens = facts.path.final_tokens
    others = np.arange(problem.T) != tokens[:, None]
    keys = beside(problem, tokens).keys
    rows = (np.take_along_axis(keys, tokens[:, None, None], axis=1) - keys)[others]
    solution = None if facts.selection is None else facts.selection.solution
    near = np.zeros(len(rows), dtype=bool) if solution is None else solution.neighbours[others]
    margins = (points @ rows.T) / norms[:, None]
    order = np.argsort(~near, kind="stable")[:LINES]
    for j in order[::-1]:
        color, width = (style.RED, 1.2) if near[j] else (style.LIGHT, 0.7)
        left.plot(norms, margins[:, j], color=color, linewidth=width, zorder=3 if near[j] else 2)
    if solution is not None:
        left.axhline(solution.margin, color=style.BLUE, linestyle="--", linewidth=1.0, zorder=4)
        left.set_title("margins along p/‖p‖: neighbours red, 1/‖p_mm‖ dashed")
    else:
        left.set_title("margins along p/‖p‖")
    off = facts.path.off(problem)[positive]
    for i in range(problem.n):
        visible = off[:, i] >= FAINTEST
        right.plot(norms[visible], off[visible, i], linewidth=1.0, label=f"input {i}")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlim(left=max(float(norms[0]), prompt_scale(facts.case, facts.optimal) / 100))
        axes.set_xlabel("‖p‖")
    right.set_title("1 − largest weight, per input")
    if problem.n <= 8:
        right.legend(fontsize=7.5, frameon=False)
