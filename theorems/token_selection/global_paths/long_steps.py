"""Gradient descent with a step size of its own at every step: as long as the margin allows, as gradients die away.

With η ≤ 1/L_p a run from a large margin m hardly moves, since ∇L ~ e^{−m}. What holds for any steps along −∇L is
claimed of runs that go through orders of magnitude.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 3 (whose long steps these are like).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from theorems.bounded import value_of
from theorems.core.claim import Form, NotANumber
from theorems.core.implementation import Implementation
from theorems.token_selection.global_paths.margin_constants import MarginConstants

STEPS = 120
"""Iterations at most."""
FACTOR = 1e3
"""Steps that are never shortened take ‖p‖ to so many times its start."""
KEPT = 0.5
"""A step may take away this share of what the margin exceeds log(2(T − 1)A) by."""
HALVINGS = 60
"""How often a step is halved for that at most."""

Points = Float64[np.ndarray, "b d"]


@dataclass(frozen=True, eq=False)
class LongSteps:
    """t single steps of gradient descent, one after another.

    Attributes:
        begins: what each was started from, (t, b, d).
        points: what came back of each, (t, 2, b, d) if it is a run of one step.
        log_steps: log η of each, (t, b).
    """

    begins: list[Points]
    points: list[Float64[np.ndarray, "..."]]
    log_steps: Float64[np.ndarray, "t b"]


def long_steps(
    constants: MarginConstants, under_test: Implementation, starts: Points, steps: int, claim: str
) -> LongSteps:
    """Steps of equal shares of ‖p‖ in even columns, of shares that fall like 1/s in odd ones, where margins allow.

    Args:
        claim: what is falsified where the gradient under test has no direction.

    Raises:
        NotANumber: it has none.
    """
    problem, rows, region = constants.problem, value_of(constants.rows), float(value_of(constants.region))
    p, shares, begins, points, log_steps = starts, _shares(steps, len(starts)), [], [], []
    for share in shares:
        found = under_test.scaled_gradient(problem.keys, problem.scores, problem.loss, p)
        log_norm, direction = np.asarray(found.log_norm), np.asarray(found.direction)
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
        run = under_test.gradient_descent(
            problem, p, steps=1, log_step=log_steps[-1], gradient=under_test.scaled_gradient
        )
        begins.append(p)
        points.append(run.points)
        if run.points.shape != (2, *p.shape) or not np.isfinite(run.points).all():
            break
        p = run.points[1]
    return LongSteps(begins, points, np.array(log_steps))


def _shares(steps: int, runs: int) -> Float64[np.ndarray, "t b"]:
    """‖Δ‖/‖p‖ of each step; those of a run multiply ‖p‖ by :data:`FACTOR` together."""
    even = np.full(steps, math.log(FACTOR) / steps)
    falling = 1 / (np.arange(steps) + 20.0)
    odd = falling * (math.log(FACTOR) / falling.sum())
    return np.stack([odd if k % 2 else even for k in range(runs)], axis=1)
