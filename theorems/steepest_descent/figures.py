"""Figure norms: steepest descent in four norms, with margin gaps, their proven bounds, and the tokens selected.

Left: the tokens of figure-1a, the start (0, −1.5), steps of length 1/√t; in ℓ1 the gap is only a rounding error. Right:
one input of six tokens with unequal scores, where the norm decides which token a run selects; no theorem covers this
start.

Source: our own; :mod:`theorems.steepest_descent`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from generators.user_data import load
from reference_attention.losses import loss_named
from reference_attention.norms import name_of
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.steepest_descent import steepest_descent
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings
from theorems.steepest_descent.margin_gap import margin_gap

NORMS = (1.0, 1.5, 2.0, math.inf)
COLORS = (style.GREEN, style.ORANGE, style.BLUE, style.RED)
AGAINST = [0.0, -1.5]
STEPS = 1000
RECORDED = (10, 20, 50, 100, 200, 500, STEPS)
KEYS = [[1.0, -0.375], [0.875, -0.875], [0.25, 0.75], [-0.875, -0.5], [-0.5, 1.5], [1.0, -1.5]]
SCORES = [1.0, 0.0, 4.0, 3.0, 5.0, 2.0]
START = [1.0, -1.25]
SHORT = 0.5 / np.sqrt(np.arange(1.0, 201))
"""The lengths of the steps in the right panel."""


def numbers(settings: Settings) -> Numbers:
    """Return, for each norm, the recorded margin gaps, their bounds, and the right panel's run and selected token."""
    gaps, curves = load("figure-1a", 0).case.problem, []
    picture = Problem(np.array([KEYS]), np.array([SCORES]), loss_named("correlation"))
    svm = settings.under_test[max_margin](gaps.exact_keys, gaps.optimal)
    assert isinstance(svm, MaxMargin)
    lengths = 1 / np.sqrt(np.arange(1.0, STEPS + 1))
    for norm in NORMS:
        options: dict[str, Any] = {"norm": norm, "gradient": settings.under_test[scaled_gradient]}
        run = settings.under_test[steepest_descent](gaps, np.array([AGAINST]), lengths=lengths, **options)[:, 0]
        margin_gaps = [margin_gap(gaps, svm, run[: t + 1], norm, 0.0) for t in RECORDED]
        path = settings.under_test[steepest_descent](picture, np.array([START]), lengths=SHORT, **options)[:, 0]
        curves.append(
            {
                "norm": name_of(norm),
                "measured": [None if gap is None else gap.measured for gap in margin_gaps],
                "guarantee": [None if gap is None else gap.at_most for gap in margin_gaps],
                "path": path.tolist(),
                "selected": int(picture.selection_at(path[-1])[0]),
            }
        )
    return {"iterations": list(RECORDED), "keys": KEYS, "scores": SCORES, "curves": curves}


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw gaps and their bounds (dashed) on the left; runs, keys and selected tokens on the right."""
    left, right = figure.subplots(1, 2)
    t = numbers["iterations"]
    style.plane(right, -6.0, 5.0, -7.0, 4.0)
    for k, ((x, y), score) in enumerate(zip(numbers["keys"], numbers["scores"], strict=True)):
        right.plot([x], [y], "o", color=style.BLACK, markersize=4, zorder=5)
        style.name(right, x, y + 0.18, f"{k}: {score:g}", ha="center", va="bottom", fontsize=7)
    for curve, color in zip(numbers["curves"], COLORS, strict=True):
        for kind, line in (("guarantee", "--"), ("measured", "-")):
            points = [(x, y) for x, y in zip(t, curve[kind], strict=True) if y is not None and y > FLOOR]
            if points:
                label = curve["norm"] if line == "--" else None
                left.plot(*zip(*points, strict=True), line, color=color, label=label)
        path = np.array(curve["path"])
        label = f"{curve['norm']}: token {curve['selected']}"
        right.plot(path[:, 0], path[:, 1], ".-", color=color, markersize=3, linewidth=1, label=label)
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("iteration t")
    left.set_title("margin gap: dashed proven, solid measured")
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8, loc="upper right")
    right.set_title("tokens: scores; which one each norm selects")


FLOOR = 1e-12
"""The size below which a margin gap is not drawn, because it is only a rounding error."""
FIGURES = [Figure("norms", "steepest descent in four norms", (7.6, 3.8), numbers, draw)]
