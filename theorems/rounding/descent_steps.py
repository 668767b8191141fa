"""Claims that each step of a run is a step of (normalized) gradient descent, up to rounding.

Bounds on iterates do not show how the iterates were computed. These claims compare each step from p(t) to p(t+1) with
the gradient at p(t).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.tolerances import EXACT, tolerance

STEP_ROUNDING = tolerance(
    "step-rounding",
    "the error bound of p(t+1) − p(t) + η∇L(p(t)), and eps (|p(t+1)| + (8 + 2|log η| + 2|log scale|) η|∇L|) by"
    " coordinate",
    "the gradient is known up to its error bound; a loop adds the logarithms of step and scale, takes the exponential,"
    " multiplies and rounds the new iterate once",
)

LARGEST_EXPONENT = 700.0
"""Largest logarithm of a step's length; longer steps are outside float64, so no run takes them."""


def starts_claim(
    name: str, points: Float64[np.ndarray, "..."], starts: Float64[np.ndarray, "..."], steps: int
) -> Claim:
    """Return the claim that a run has the iterates p(0), …, p(steps), and that p(0) is the given start, bit by bit.

    Args:
        name: the name of the claim.
        points: the iterates of the run, (steps+1, *b, d).
        starts: the starts given to the training loop, (*b, d).
        steps: the requested number of steps.
    """
    wrong = ""
    if points.shape != (steps + 1, *starts.shape):
        wrong = f"iterates of shape {points.shape} for {steps} steps from starts of shape {starts.shape}"
    elif not np.array_equal(points[0], starts):
        wrong = f"p(0) is {np.abs(points[0] - starts).max():.3g} away from the start"
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def steps_claim(
    name: str,
    before: Float64[np.ndarray, "*b d"],
    after: Float64[np.ndarray, "*b d"],
    gradient: Any,
    log_scale: Float64[np.ndarray, "*b"],
    log_step: float | Float64[np.ndarray, "..."],
    *,
    normalized: bool = False,
) -> Claim:
    """Return the claim that p(t+1) = p(t) − η∇L(p(t)), or p(t) − η∇L(p(t))/‖∇L(p(t))‖, up to rounding.

    Args:
        name: the name of the claim.
        before: p(t), of one run or of many, (*b, d).
        after: p(t+1), (*b, d).
        gradient: ∇L(p(t)) e^{−log_scale} with the error that a correct gradient may have, (*b, d); see
            :meth:`theorems.rounding.attention_at.AttentionAt.gradient_of`.
        log_scale: the logarithm of the unit of ``gradient``, (*b,).
        log_step: log η of the step size, which broadcasts against ``log_scale``.
        normalized: True if the gradient is divided by its norm.
    """
    size = norm(gradient, axis=-1)
    if normalized:
        # A zero gradient must give no step. If the gradient may be zero within its error, its direction is unknown, and
        # any step is accepted.
        zero = np.all(value_of(gradient) == 0, axis=-1) & np.all(gradient.error == 0, axis=-1)
        log_factor = np.where(zero, -np.inf, exact(log_step) - np.log(np.where(zero, 1.0, size)))
    else:
        log_factor = exact(log_step) + log_scale
    step = np.exp(np.minimum(log_factor, LARGEST_EXPONENT))[..., None] * gradient
    logs = 8 + 2 * (np.abs(log_step) + np.abs(log_scale))
    rounding = EPS * (np.abs(after) + np.asarray(logs)[..., None] * np.abs(value_of(step)))
    off = (exact(after) - before + step).widen(rounding)
    length = np.maximum(norm(before, axis=-1), norm(after, axis=-1))[..., None]
    scale = np.where(length > 0, length, 1.0)
    return at_least(name, Form.EXACT, 0.0, np.abs(off), why=STEP_ROUNDING, scale=scale, points="coordinate of a step")
