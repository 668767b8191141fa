"""Figure 8: for two inputs of two tokens, gradient descent from two starts converges to two max-margin directions.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figure 8, Appendix E (the numbers of the data are ours).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.datasets import dataset_named
from theorems.figures import style
from theorems.figures.directions import optima, optima_numbers, paths
from theorems.figures.figure import Figure, Numbers, Settings

COLORS = {"GMM": style.RED, "LMM": style.BLUE}


def numbers(settings: Settings) -> Numbers:
    """Return tokens, both max-margin directions, and the path of gradient descent from either start."""
    case = dataset_named("figure-8")
    problem = case.problem
    return {
        "data": "figure-8",
        "keys": problem.keys.tolist(),
        "scores": problem.scores.tolist(),
        "optima": optima_numbers(optima(problem, settings.under_test)),
        "paths": paths(problem, np.array(case.arrays["start_prompts"]), settings.under_test),
    }


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw tokens, directions and paths, each path in the colour of the direction at which it ends."""
    axes = figure.add_subplot()
    style.plane(axes, -2.6, 6.4, -0.8, 6.2)
    for optimum in numbers["optima"]:
        style.ray(axes, optimum["direction"], 12.0, COLORS[optimum["kind"]])
    for path in numbers["paths"]:
        kind = numbers["optima"][path["ends_at"]]["kind"] if path["ends_at"] is not None else ""
        color = COLORS.get(kind, style.BLACK)
        axes.plot(*zip(*path["points"], strict=True), color=color, linewidth=1.6, zorder=4)
        axes.plot(*path["start"], "o", color=color, markersize=5, zorder=5)
        x, y = path["start"]
        on_the_left = x < 1
        where = (x - 0.2, y - 0.25) if on_the_left else (x, y + 0.3)
        style.name(axes, *where, f"$p(0)$ = ({x:g}, {y:g})", color, ha="right" if on_the_left else "center")
        style.arrow(axes, path["points"], 16, color)
    (first, zero), (second, _) = numbers["keys"]
    axes.plot(*first, "*", color=style.GREEN, markersize=14, markeredgecolor="white", zorder=5)
    axes.plot(*second, "*", color=style.GREEN, markersize=14, markeredgecolor="white", zorder=5)
    axes.plot(*zero, "s", color=style.BLACK, markersize=7, zorder=5)
    style.name(axes, first[0] + 0.05, first[1] - 0.42, "input 1, score 1", style.GREEN, ha="left")
    style.name(axes, second[0], second[1] + 0.25, "input 2, score 1", style.GREEN, ha="left")
    style.name(axes, zero[0] - 0.15, zero[1] - 0.42, "both inputs, score 0", style.BLACK, ha="right")
    style.name(axes, 1.95, 5.3, r"$\bar p_{\rm mm}$ (GMM)", style.RED)
    style.name(axes, 5.0, 0.3, r"$\bar p_{\rm mm}(\alpha)$ (LMM)", style.BLUE)


FIGURES = [Figure("8", "two inputs: two starts, two max-margin directions", (5.8, 4.8), numbers, draw)]
