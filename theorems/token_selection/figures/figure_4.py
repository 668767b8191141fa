"""Figures 4(a), 4(b): softmax probability and norm of p under gradient descent and normalized gradient descent.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figure 4, Section 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.datasets import dataset_named
from reference_attention.risk import scaled_gradient, softmax_weights
from reference_attention.training.descent import Trajectory, descend
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

STEPS = 1000
RULES = {
    "gd": ("gradient descent, step 1", 1.0, False),
    "normalized": ("normalized gradient descent, step 0.1", 0.1, True),
}
COLORS = {"gd": style.BLUE, "normalized": style.RED}


def numbers(settings: Settings) -> Numbers:
    """Return by rule, at every iteration from p(0) = 0, the mean over inputs of the largest softmax weight, and ‖p‖."""
    problem = dataset_named("figure-4").problem
    result: Numbers = {"data": "figure-4", "softmax": {}, "norm": {}}
    for key, (_, step, normalized) in RULES.items():
        run: Trajectory = descend(
            problem.keys,
            problem.scores,
            problem.loss,
            np.zeros(problem.d),
            steps=STEPS,
            log_step=float(np.log(step)),
            normalized=normalized,
            gradient=settings.under_test[scaled_gradient],
        )
        weights = np.asarray(settings.under_test[softmax_weights](problem.keys, run.points))
        result["softmax"][key] = weights.max(axis=-1).mean(axis=-1).tolist()
        result["norm"][key] = run.norms.tolist()
    return result


def _curves(axes: Any, curves: dict[str, list[float]], places: dict[str, tuple[float, float]]) -> None:
    """Draw a curve over the iterations for each rule (gradient descent, normalized), with a label at its place."""
    for key, values in curves.items():
        axes.plot(values, color=COLORS[key])
        style.name(axes, *places[key], RULES[key][0], COLORS[key])
    axes.set_xlim(0, STEPS)
    axes.set_xlabel("iteration")


def draw_softmax(figure: Any, numbers: Numbers) -> None:
    """Draw the mean softmax weight of the selected tokens under both rules, gradient descent and normalized."""
    axes = figure.add_subplot()
    curves = numbers["softmax"]
    _curves(axes, curves, {"gd": (420.0, curves["gd"][420] - 0.11), "normalized": (230.0, 1.025)})
    axes.set_ylim(0, 1.12)
    axes.axhline(1, color=style.LIGHT, linewidth=0.8, zorder=0)
    axes.set_ylabel(r"$\frac{1}{n}\sum_i \max_t s_{it}$")


def draw_norm(figure: Any, numbers: Numbers) -> None:
    """Draw ‖p‖ under both rules on a logarithmic axis: linear in t for normalized steps, otherwise like log t."""
    axes = figure.add_subplot()
    _curves(axes, numbers["norm"], {"gd": (420.0, 2.6), "normalized": (90.0, 95.0)})
    axes.set_yscale("log")
    axes.set_ylim(0.08, 200)
    axes.set_ylabel(r"$\|p\|$")


FIGURES = [
    Figure(
        "4a",
        "largest softmax probability under gradient descent and normalized gradient descent",
        (5.4, 3.5),
        numbers,
        draw_softmax,
    ),
    Figure("4b", r"$\|p\|$ under gradient descent and normalized gradient descent", (5.4, 3.5), numbers, draw_norm),
]
