"""Columns of the plane: places of tokens, starts, directions, margin band, runs and contours."""

from __future__ import annotations

from typing import Any

import numpy as np
from contourpy import contour_generator
from jaxtyping import Float64

from generators.layer_weights import checkpoints_of
from reference_attention.risk import risk
from reference_attention.svm.max_margin import MaxMargin
from theorems.explore.exact_solutions import Solved
from theorems.explore.plane_view import View
from theorems.explore.runs import Run
from theorems.explore.state import State

Columns = dict[str, list[Any]]
GRID = 40
"""Number of points along a side of the grid on which the risk is computed."""
LEVELS = 9
"""Number of contours."""
FAR_OUT = 8.0
"""Length of lines that reach beyond the picture, in units of its extent."""
KINDS = {True: "GMM", False: "LMM"}
"""Name of a max-margin direction, by whether its tokens are optimal: globally (GMM) or locally max-margin (LMM)."""
TOKEN = ("input", "token", "x", "y", "score", "is", "margin", "dual", "margin_says", "dual_says", "label")
"""Names of the columns of tokens."""
SAME_PLACE = 0.012
"""Share of the picture's extent, about four pixels, within which the labels of tokens would cover each other."""
MOST_IN_PLACE = 3
"""Largest number of tokens in one place that a label names; if one token more is there, it is named, too."""
MOST_SELECTED = 12
"""Largest number of inputs whose selected tokens are listed."""
MOST_LISTED = 8
"""Largest number of locally optimal directions that are drawn."""


def tokens(state: State, solved: Solved) -> Columns:
    """Return a row per token: place, score, exact role, margin and dual weight rounded once."""
    problem, about = state.case.problem, solved.about
    svm = about.solution
    places = solved.view.place_tokens(state.tokens)
    labels = _labels(places.reshape(-1, 2), problem.T, SAME_PLACE * solved.view.extent)
    columns: Columns = {name: [] for name in TOKEN}
    for i, t in np.ndindex(problem.n, problem.T):
        chosen = int(about.alpha[i]) == t
        role = "chosen" if chosen else "neighbour" if svm is not None and svm.neighbours[i, t] else "other"
        margin = None if svm is None or chosen else float(svm.margins[i, t])
        dual = None if svm is None else float(svm.duals[i, t])
        row = (
            i,
            t,
            float(places[i, t, 0]),
            float(places[i, t, 1]),
            float(problem.scores[i, t]),
            role,
            margin,
            dual,
            "none, it is chosen" if chosen else _number(margin),
            _number(dual),
            labels[i * problem.T + t],
        )
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    n = problem.n * problem.T
    columns["near"] = [1.0 if i == state.token[0] else 0.4 for i in columns["input"]]
    columns["ring"] = [
        14.0 if (i, t) == state.token else 0.0 for i, t in zip(columns["input"], columns["token"], strict=True)
    ]
    for k in range(state.tokens.shape[2]) if state.tokens.shape[2] <= 3 else ():
        columns[f"k{k + 1}"] = state.tokens[:, :, k].ravel().tolist()
    assert all(len(column) == n for column in columns.values())
    return columns


def _number(value: float | None) -> str:
    """Return a number as text; for None, a text that says why there is no number."""
    return "none: there is no p_mm" if value is None else f"{value:.6g}"


def _labels(places: Float64[np.ndarray, "N 2"], T: int, near: float) -> list[str]:
    """Return a label per token; where tokens share a place, the first label names all, and the others are empty."""
    labels = [""] * len(places)
    first: list[int] = []
    shared: dict[int, list[int]] = {}
    for k, place in enumerate(places):
        first_at_place = next((j for j in first if np.abs(places[j] - place).max() <= near), None)
        if first_at_place is None:
            first.append(k)
        shared.setdefault(k if first_at_place is None else first_at_place, []).append(k)
    for k, tokens_there in shared.items():
        names = [f"{j // T}·{j % T}" for j in tokens_there]
        rest = len(names) - MOST_IN_PLACE
        labels[k] = ", ".join(names) if rest <= 1 else f"{', '.join(names[:MOST_IN_PLACE])} and {rest} more"
    return labels


def trained(state: State, view: View) -> Columns:
    """Return a row per checkpoint of the data's trained weights; points outside the picture are put at its edge."""
    checkpoints = None if state.case.sequence is not None else checkpoints_of(state.case)
    columns: Columns = {"x": [], "y": [], "name": [], "norm": [], "selects": []}
    if checkpoints is None:
        return columns
    several = len(checkpoints.weights) > 1
    for step, weights in zip(checkpoints.steps, checkpoints.weights, strict=True):
        p = weights.prompt
        place = view.place_prompts(p)
        place = place * min(1.0, view.extent / (float(np.abs(place).max()) or 1.0))
        selects = ", ".join(map(str, state.case.problem.selection_at(p)[:MOST_SELECTED].tolist()))
        columns["x"].append(float(place[0]))
        columns["y"].append(float(place[1]))
        columns["name"].append(f"{weights.name} at step {step:g}" if several else weights.name)
        columns["norm"].append(float(np.linalg.norm(p)))
        columns["selects"].append(selects + (", …" if state.case.problem.n > MOST_SELECTED else ""))
    return columns


def starts(state: State, view: View) -> Columns:
    """Return a row per start: its number, place and norm."""
    places = view.place_prompts(state.starts)
    norms = np.linalg.norm(state.starts, axis=1)
    return {
        "start": list(range(len(places))),
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "norm": norms.tolist(),
    }


def rays(solved: Solved) -> Columns:
    """Return the max-margin directions of the choices of tokens, as lines from 0 to beyond the picture's edge."""
    columns: Columns = {name: [] for name in ("xs", "ys", "kind", "alpha", "norm", "width")}
    choices = [choice for choice in solved.choices if choice.solution is not None][:MOST_LISTED]
    for choice in choices:
        svm = choice.solution
        assert isinstance(svm, MaxMargin)
        way = solved.view.place_tokens(solved.view.attention_vector(svm.direction))
        end = FAR_OUT * solved.view.extent * way / (np.linalg.norm(way) or 1.0)
        kind = KINDS[choice.name == "optimal"] if choice.locally_optimal or choice.name == "optimal" else "not optimal"
        row = ([0.0, float(end[0])], [0.0, float(end[1])], kind, str(choice.alpha.tolist()), svm.norm)
        for name, value in zip(columns, (*row, 2.5 if choice is solved.about else 1.5), strict=True):
            columns[name].append(value)
    return columns


def band(state: State, solved: Solved) -> Columns:
    """Return the margin band of the ringed token's input: between k_α·p_mm and k_α·p_mm − 1, where neighbours lie."""
    svm, view = solved.about.solution, solved.view
    if svm is None:
        return {"xs": [], "ys": [], "edge": []}
    way = view.place_tokens(view.attention_vector(svm.p))
    if view.query is not None:  # the logit is x·W z, and attention_vector returns W z/‖z‖
        way = way * float(np.linalg.norm(view.query))
    length = float(np.linalg.norm(way))
    if length == 0:
        return {"xs": [], "ys": [], "edge": []}
    i = state.token[0]
    high = float(view.place_tokens(state.tokens[i, int(solved.about.alpha[i])]) @ way)
    side = FAR_OUT * view.extent * np.array([-way[1], way[0]]) / length
    columns: Columns = {"xs": [], "ys": [], "edge": []}
    for level, edge in ((high, "chosen token"), (high - 1, "margin 1: SVM-neighbours")):
        foot = level * way / length**2
        columns["xs"].append([float(foot[0] - side[0]), float(foot[0] + side[0])])
        columns["ys"].append([float(foot[1] - side[1]), float(foot[1] + side[1])])
        columns["edge"].append(edge)
    return columns


def run_columns(runs: list[Run], view: View) -> Columns:
    """Return a row per run: places in the plane, rule, start, step size in words, and ‖p‖ at its end."""
    columns: Columns = {name: [] for name in ("xs", "ys", "rule", "start", "how", "norm")}
    for run in runs:
        places = view.place_prompts(run.points)
        places = places[np.isfinite(places).all(axis=1)]
        row = (places[:, 0].tolist(), places[:, 1].tolist(), run.rule, run.start, run.how, float(run.norms[-1]))
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    return columns


def contours(state: State, view: View) -> Columns:
    """Return lines of equal risk L(p) for p in the plane; if W is trained, for W = v zᵀ/‖z‖ with v in the plane."""
    side = np.linspace(-1.0, 1.0, GRID) * 1.05 * view.extent
    places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    problem = state.case.problem
    values = np.asarray(risk(problem.keys, problem.scores, problem.loss, view.prompts_at(places))).reshape(GRID, GRID)
    low, high = float(values.min()), float(values.max())
    columns: Columns = {"xs": [], "ys": [], "risk": []}
    if not (np.isfinite(values).all() and high > low):
        return columns
    generator = contour_generator(side, side, values)
    for level in np.linspace(low, high, LEVELS + 2)[1:-1]:
        for line in generator.lines(float(level)):
            points = np.asarray(line)
            columns["xs"].append(points[:, 0].tolist())
            columns["ys"].append(points[:, 1].tolist())
            columns["risk"].append(float(level))
    return columns
