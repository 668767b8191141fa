"""Two figures of margins: Adam on single samples, on all samples, and with ε > 0; Adam and another rule on attention.

The other rule is normalised descent. Each run is a path in the plane with axes m/‖·‖_2 and m/‖·‖_∞, the margins in ℓ2
and ℓ∞, divided by their largest values.

Source: derived here; :mod:`theorems.adaptive_methods`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, scaled_gradient
from reference_attention.training.iteration import batch_field
from reference_attention.training.steepest_descent import steepest_descent
from theorems.adaptive_methods.adam import Betas, Moments, adam_descent, adam_direction
from theorems.adaptive_methods.batches import batch_gradient
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

ROWS = np.array([[1.0, 1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0, 1.0], [3.0, -3.0, 3.0, 3.0, 3.0]])
"""Three samples; all entries of a sample have the same modulus."""
SOLUTIONS = np.array([[11.0, 5.0, -5.0, 3.0, 3.0], [7.0, 7.0, -7.0, 7.0, 7.0]]) / 21
"""The max-margin solutions of the samples in ℓ2 and in ℓ∞, scaled to margin 1."""
LARGEST = math.sqrt(7 / 3), 3.0
"""The largest margins of the samples in ℓ2 and ℓ∞."""
STEPS, ATTENDED = 12_000, 4000
BETAS = Betas(0.9, 0.95)
EPSILON = 1e-3
SINGLE, FULL, WITH_EPSILON = "one sample a step", "all samples", f"all samples, ε = {EPSILON:g}"
COLORS = {SINGLE: style.BLUE, FULL: style.RED, WITH_EPSILON: style.ORANGE, "Adam": style.RED, "normalised": style.BLUE}
AHEAD = 8.0
"""The margin at the start of the runs on attention; the start has the direction of the ℓ2 solution."""


def numbers(settings: Settings) -> Numbers:
    """Return the path of each run on the three samples, and the positions of the solutions in ℓ2 and in ℓ∞."""
    lengths = 0.5 / np.sqrt(np.arange(1.0, STEPS + 1))
    runs = {}
    for label, shares, epsilon in (
        (SINGLE, np.tile(np.eye(3), (STEPS // 3, 1)), 0.0),
        (FULL, np.full((STEPS, 3), 1 / 3), 0.0),
        (WITH_EPSILON, np.full((STEPS, 3), 1 / 3), EPSILON),
    ):
        batches = iter(shares)

        def field(W: Float64[np.ndarray, "b d"], batches: Any = batches) -> tuple[Any, Any]:
            logits = W @ ROWS.T
            samples = ScaledGradient(-np.logaddexp(0.0, logits), -np.broadcast_to(ROWS, (len(W), *ROWS.shape)))
            slope = settings.under_test[batch_gradient](samples, next(batches))
            return slope.log_scale, slope.direction

        def direction(moments: Moments, betas: Betas, t: int, epsilon: float = epsilon) -> Any:
            root = moments.root + epsilon * np.exp(-np.maximum(moments.log_scale, -700.0))[:, None]
            return settings.under_test[adam_direction](replace(moments, root=root) if epsilon else moments, betas, t)

        points = settings.under_test[adam_descent](
            field, np.zeros((1, 5)), lengths=lengths, betas=BETAS, direction=direction
        )
        runs[label] = shares_of(points[recorded(STEPS), 0])
    return {"runs": runs, "solutions": shares_of(SOLUTIONS)}


def attention_numbers(settings: Settings) -> Numbers:
    """Return the paths of Adam and of normalised descent on attention, and the positions of the solutions in ℓ2 and ℓ∞.

    Both runs start in the direction of the ℓ2 solution. Each input has two tokens: a sample, which is optimal, and 0.
    """
    keys = np.stack([ROWS, np.zeros_like(ROWS)], axis=1)
    problem = Problem(keys, np.tile([1.0, 0.0], (3, 1)), loss_named("correlation"))
    lengths, start = 0.3 / np.sqrt(np.arange(1.0, ATTENDED + 1)), AHEAD * SOLUTIONS[:1]
    gradient = settings.under_test[scaled_gradient]
    field = batch_field(problem.keys, problem.scores, problem.loss, gradient, (1,))
    adam = settings.under_test[adam_descent](field, start, lengths=lengths, betas=BETAS)
    normalised = settings.under_test[steepest_descent](problem, start, lengths=lengths, norm=2.0, gradient=gradient)
    runs = {"Adam": adam[recorded(ATTENDED), 0], "normalised": normalised[recorded(ATTENDED), 0]}
    return {
        "runs": {label: shares_of(points) for label, points in runs.items()},
        "solutions": shares_of(SOLUTIONS),
    }


def recorded(steps: int) -> Any:
    """Return the indices of the iterations to draw: about 80, evenly spaced in log t, without the start."""
    return np.unique(np.round(np.geomspace(1, steps, 80)).astype(np.int64))


def shares_of(points: Float64[np.ndarray, "r d"]) -> list[list[float]]:
    """Return m(p)/‖p‖_2 and m(p)/‖p‖_∞ of each point p, m its margin, as shares of their largest possible values."""
    least = (points @ ROWS.T).min(axis=1)
    sizes = np.linalg.norm(points, axis=1) * LARGEST[0], np.abs(points).max(axis=1) * LARGEST[1]
    return [[float(x), float(y)] for x, y in zip(least / sizes[0], least / sizes[1], strict=True)]


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw each path, its last point, and the solutions in ℓ2 and ℓ∞."""
    axes = figure.subplots()
    for label, path in numbers["runs"].items():
        points = np.array([point for point in path if min(point) > LEAST])
        axes.plot(points[:, 0], points[:, 1], color=COLORS[label], label=label)
        axes.plot(points[-1:, 0], points[-1:, 1], "o", color=COLORS[label], markersize=4)
    for (x, y), label in zip(numbers["solutions"], ("$w_2$", "$w_\\infty$"), strict=True):
        axes.plot([x], [y], "*", color=style.BLACK, markersize=9, zorder=5)
        style.name(axes, x - 0.01, y - 0.03, label, ha="right", va="top")
    axes.set_xlim(LEAST, 1.04)
    axes.set_ylim(LEAST, 1.04)
    axes.set_xlabel("share of the largest ℓ2 margin")
    axes.set_ylabel("share of the largest ℓ∞ margin")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


LEAST = 0.3
"""The smallest share shown on the axes; the first points of runs are below it."""
FIGURES = [
    Figure("adam-margins", "Adam: which margin becomes the largest", (4.6, 4.0), numbers, draw),
    Figure("adam-attention", "Adam and normalised descent on attention", (4.6, 4.0), attention_numbers, draw),
]
