"""Figures 1(a), 1(b), 1(c): paths of gradient descent on p, and the max-margin directions at which they end.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figure 1, Sections 2.1 and 2.2.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from generators.datasets import dataset_named
from theorems.figures import style
from theorems.figures.directions import optima, optima_numbers, paths
from theorems.figures.figure import Figure, Numbers, Settings

CIRCLE = tuple((math.cos(a), math.sin(a)) for a in np.deg2rad(np.arange(15, 375, 45)).tolist())
"""The starts of Figure 1(c): eight on the unit circle, because the paper shows several and gives no coordinates."""
VIEWS = {
    "figure-1a": (-5.0, 3.5, -2.0, 9.0),
    "figure-1b": (-2.2, 6.5, -2.2, 6.0),
    "figure-1c": (-2.0, 6.8, -1.8, 2.8),
}
"""The left, right, bottom and top limits of the drawn area, by the name of the figure's data."""
COLORS = {"GMM": style.BLUE, "LMM": style.RED}


def numbers(name: str, settings: Settings) -> Numbers:
    """Return tokens, scores and max-margin directions of named data, and the path of descent from each start."""
    case = dataset_named(name)
    problem = case.problem
    starts = np.array(CIRCLE) if problem.n > 1 else np.array(case.arrays["start_prompts"])
    return {
        "data": name,
        "keys": problem.keys.tolist(),
        "scores": problem.scores.tolist(),
        "optimal": problem.optimal.tolist(),
        "optima": optima_numbers(optima(problem, settings.under_test)),
        "paths": paths(problem, starts, settings.under_test),
    }


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw paths in grey, directions as dashed lines and tokens as markers."""
    axes = figure.add_subplot()
    several = len(numbers["keys"]) > 1
    style.plane(axes, *VIEWS[numbers["data"]])
    for path in numbers["paths"]:
        points = path["points"]
        axes.plot(*zip(*points, strict=True), color=style.GREY, linewidth=1.0, zorder=2)
        axes.plot(*points[0], "o", color=style.GREY, markersize=3.5, zorder=4)
        style.arrow(axes, points, 20, style.GREY)
    for optimum in numbers["optima"]:
        style.ray(axes, optimum["direction"], 20.0, COLORS[optimum["kind"]])
    if several:
        _several(axes, numbers)
    else:
        _single(axes, numbers)


def _single(axes: Any, numbers: Numbers) -> None:
    """Draw the tokens of one input; markers show which tokens the GMM and LMM directions select."""
    keys, scores = numbers["keys"][0], numbers["scores"][0]
    best = {optimum["tokens"][0]: optimum["kind"] for optimum in numbers["optima"]}
    one_sided = len(best) == 1
    for t, key in enumerate(keys):
        color = COLORS[best[t]] if t in best else style.BLACK
        axes.plot(*key, "*" if t in best else "s", color=color, markersize=12 if t in best else 6, zorder=5)
    x, y = keys[0]
    if one_sided:
        style.name(axes, x + 0.25, y + 0.1, f"optimal\nscore {scores[0]:g}", COLORS["GMM"], va="center")
        style.name(axes, 0.12, -0.25, f"other tokens, score {scores[1]:g}", va="top")
    else:
        style.name(axes, x - 0.2, y, f"optimal\nscore {scores[0]:g}", COLORS["GMM"], ha="right", va="center")
        style.name(axes, 1.75, 0.1, f"locally optimal, score {scores[1]:g}", COLORS["LMM"], va="bottom")
        style.name(axes, -0.15, -0.25, f"other token\nscore {scores[2]:g}", ha="right", va="top")
    for optimum in numbers["optima"]:
        gmm = optimum["kind"] == "GMM"
        x, y = (optimum["direction"][k] * (VIEWS[numbers["data"]][3] - 0.6 if gmm else 4.75) for k in (0, 1))
        label = r"$\bar p_{\rm mm}$ (GMM)" if gmm else r"$\bar p_{\rm mm}(\alpha)$ (LMM)"
        place = (x + 0.25, y) if one_sided else (x - 0.2, y) if gmm else (x, y + 0.5)
        style.name(
            axes, *place, label, COLORS[optimum["kind"]], ha="right" if gmm and not one_sided else "left", va="bottom"
        )


def _several(axes: Any, numbers: Numbers) -> None:
    """Draw the tokens of several inputs, the optimal ones in blue, and a hyperplane between these and the others."""
    markers = ("o", "^", "D")
    for i, (keys, best) in enumerate(zip(numbers["keys"], numbers["optimal"], strict=True)):
        for t, key in enumerate(keys):
            color = style.BLUE if t == best else style.ORANGE
            axes.plot(*key, markers[i], color=color, markersize=6, markeredgecolor="white", zorder=5)
    q = np.array(numbers["optima"][0]["direction"])
    along = [np.array(keys) @ q for keys in numbers["keys"]]
    low = max(max(np.delete(a, best)) for a, best in zip(along, numbers["optimal"], strict=True))
    high = min(a[best] for a, best in zip(along, numbers["optimal"], strict=True))
    if low < high:
        foot, side = q * (low + high) / 2, np.array([-q[1], q[0]])
        ends = np.array([foot - 9 * side, foot + 9 * side])
        axes.plot(ends[:, 0], ends[:, 1], ":", color=style.GREY, linewidth=1.2)
        x, y = foot - 1.6 * side
        style.name(axes, x + 0.1, y, "separating hyperplane", style.GREY)
    leader = {"arrowstyle": "-", "color": style.BLUE, "linewidth": 0.7, "shrinkB": 5}
    axes.annotate(
        "optimal tokens", (0.92, 0.05), (1.1, 1.5), color=style.BLUE, fontsize=8.5, arrowprops=leader, zorder=6
    )
    style.name(axes, -1.85, 1.85, "other tokens", style.ORANGE)
    style.name(axes, 4.4, 1.95, r"$\bar p_{\rm mm}$ (GMM)", style.BLUE)


FIGURES = [
    Figure(
        "1a",
        "one input, equal non-optimal scores: gradient descent goes to GMM from everywhere",
        (4.9, 6.2),
        partial(numbers, "figure-1a"),
        draw,
    ),
    Figure(
        "1b",
        "one input, two locally optimal tokens: gradient descent goes to GMM or LMM",
        (5.2, 5.2),
        partial(numbers, "figure-1b"),
        draw,
    ),
    Figure(
        "1c",
        "three inputs of seven tokens: gradient descent goes to GMM",
        (7.2, 4.2),
        partial(numbers, "figure-1c"),
        draw,
    ),
]
