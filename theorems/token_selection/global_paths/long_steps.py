"""Gradient descent whose step size is at every step as large as the margin allows.

With η ≤ 1/L_p a run from a start of large margin m hardly moves, since ∇L is of size e^{−m}. With the longer steps of
this module ‖p‖ grows by orders of magnitude, so that the bounds that hold for steps of any length along −∇L are claimed
over a wide range of norms.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 3
(:mod:`theorems.token_selection.local_paths.cone_descent` takes similar steps).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import gradient_descent
from theorems.bounded import value_of
from theorems.core.claim import Form, NotANumber
from theorems.core.implementation import Implementation
from theorems.token_selection.global_paths.margin_constants import MarginConstants

STEPS = 120
"""The largest number of iterations."""
FACTOR = 1e3
"""The largest factor by which all steps from a start together may multiply ‖p‖."""
KEPT = 0.5
"""A step must leave at least this share of the amount by which m(p) exceeds :attr:`.MarginConstants.region`."""
HALVINGS = 60
"""Largest number of times that a step is halved to keep the margin."""

Points = Float64[np.ndarray, "b d"]


@dataclass(frozen=True, eq=False)
class LongSteps:
    """A descent of t steps from b starts, as t runs of one step, each from the end of the previous run.

    Attributes:
        begins: the start of each step, t arrays (b, d).
        points: the two iterates of each run, t arrays (2, b, d); the last array has another shape if the implementation
            returned a run of another length.
        log_steps: log η of each step, (t, b).
    """

    begins: list[Points]
    points: list[Float64[np.ndarray, "..."]]
    log_steps: Float64[np.ndarray, "t b"]


def long_steps(
    constants: MarginConstants, under_test: Implementation, starts: Points, steps: int, claim: str
) -> LongSteps:
    """Take steps of at most the lengths of :func:`_shares`, shortened where they would reduce the margin too much.

    Args:
        constants: the rows k_i,opt − k_it and the margin that has to be kept.
        under_test: the implementation that takes the steps.
        starts: p(0), (b, d).
        steps: the number of steps.
        claim: the name of the claim that is falsified where the norm of the gradient under test is no finite number.

    Raises:
        NotANumber: the norm of the gradient is no finite number.
    """
    problem, rows, region = constants.problem, value_of(constants.rows), float(value_of(constants.region))
    p, shares, begins, points, log_steps = starts, _shares(steps, len(starts)), [], [], []
    for share in shares:
        slope = under_test[scaled_gradient](problem.keys, problem.scores, problem.loss, p)
        log_norm, direction = np.asarray(slope.log_norm), np.asarray(slope.direction)
        if not np.isfinite(log_norm).all():
            raise NotANumber(claim, "the gradient under test has no direction", Form.EFFECTIVE)
        unit = -direction / norm(direction, axis=1)[:, None]
        margins, length = (p @ rows.T).min(axis=1), share * norm(p, axis=1)
        least = region * (1 + 8 * EPS) + KEPT * np.maximum(margins - region, 0.0)
        for _ in range(HALVINGS):
            short = ((p + length[:, None] * unit) @ rows.T).min(axis=1) < least
            if not short.any():
                break
            length = np.where(short, length / 2, length)
        log_steps.append(np.log(length) - log_norm)
        run = under_test[gradient_descent](
            problem, p, steps=1, log_step=log_steps[-1], gradient=under_test[scaled_gradient]
        )
        begins.append(p)
        points.append(run.points)
        if run.points.shape != (2, *p.shape) or not np.isfinite(run.points).all():
            break
        p = run.points[1]
    return LongSteps(begins, points, np.array(log_steps))


def _shares(steps: int, runs: int) -> Float64[np.ndarray, "t b"]:
    """Return the ratio ‖Δ‖/‖p‖ for each step s: constant for starts of even index, for the others falling like 1/s.

    All steps from a start together multiply ‖p‖ by at most :data:`FACTOR`.
    """
    even = np.full(steps, math.log(FACTOR) / steps)
    falling = 1 / (np.arange(steps) + 20.0)
    odd = falling * (math.log(FACTOR) / falling.sum())
    return np.stack([odd if k % 2 else even for k in range(runs)], axis=1)
