"""Runs of gradient descent, normalized or not, with a bound of their drift: the sum of the steps' rounding errors.

:mod:`theorems.curves.descent` bounds the drift coordinate by coordinate at the checked iterates; here its norm is
bounded at all iterates.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.training.descent import Stop, Trajectory
from theorems.bounded import Bounded, exact
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict
from theorems.core.claim_name import ClaimName
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.descent_steps import starts_claim, steps_claim


@dataclass(frozen=True, eq=False)
class Run:
    """Iterates and steps of b runs, with bounds of the rounding errors that their steps have accumulated (the drift).

    Attributes:
        p: the iterates p(0) … p(t) as bounded arrays without error, (t + 1, b, d).
        moved: the steps p(s+1) − p(s), (t, b, d).
        drift: after each step, the sum of the bounds of ‖Δ + η∇L‖ over the steps Δ so far, (t, b).
    """

    p: Numbers
    moved: Numbers
    drift: Float64[np.ndarray, "t b"]


def run_premises(
    problem: Problem,
    under_test: Implementation,
    trajectory: Trajectory,
    starts: Float64[np.ndarray, "b d"],
    steps: int,
    step: float | Float64[np.ndarray, "b"],
    names: tuple[ClaimName, ClaimName],
    first: str,
) -> Generator[Claim, None, Run]:
    """Yield the claims that a trajectory is the requested run, and return the run with its drift.

    A conclusion calls it as ``run = yield from run_premises(…)``.

    Args:
        problem: keys, scores, loss.
        under_test: the implementation that computed the trajectory.
        trajectory: the trajectory that was returned.
        starts: p(0), (b, d).
        steps: the requested number of steps.
        step: log η of each start, as an array; or the length of every normalized step, as a float.
        names: the names of two premises: that the run has these starts and this number of steps, and that each iterate
        is one step from the previous iterate.
        first: the name of the conclusion's claim that is undecided where a step overflows.

    Raises:
        Ended: the trajectory does not have these starts and steps.
        Undecided: a step overflows.
    """
    asked_for, is_a_step = names
    first_claim = starts_claim(asked_for, trajectory.points, starts, steps)
    yield first_claim
    if first_claim.verdict is Verdict.FALSIFIED:
        raise Ended(asked_for)
    if trajectory.stop is Stop.OVERFLOW:
        raise Undecided(first, "a step overflows float64", Form.EFFECTIVE)
    return (yield from step_premises(problem, under_test, trajectory.points, step, is_a_step))


def step_premises(
    problem: Problem,
    under_test: Implementation,
    points: Float64[np.ndarray, "t b d"],
    step: float | Float64[np.ndarray, "*t b"],
    is_a_step: ClaimName,
) -> Generator[Claim, None, Run]:
    """Yield the claim that each iterate is one step from the previous iterate, and return the run.

    Args:
        problem: keys, scores, loss.
        under_test: the implementation whose gradient is followed.
        points: the iterates, (t + 1, b, d).
        step: log η of each start, or of each step and start, as an array; or the length of every normalized step, as a
            float.
        is_a_step: the name of the claim.

    Raises:
        NotANumber: an iterate is not finite.
    """
    normalized = isinstance(step, float)
    if not np.isfinite(points).all():
        raise NotANumber(is_a_step, "an iterate is not finite")
    before, after = points[:-1], points[1:]
    at = AttentionAt(problem, before.reshape(-1, problem.d))
    gradient = at.gradient_of(under_test, is_a_step).reshape(before.shape)
    log_scale = at.log_scale.reshape(before.shape[:-1])
    log_step = np.log(step) if normalized else step
    yield steps_claim(is_a_step, before, after, gradient, log_scale, log_step, normalized=normalized)
    moved = after - before
    if normalized:
        # The directions of gradients g and h differ by ‖g/‖g‖ − h/‖h‖‖ ≤ 2‖g − h‖/‖g‖, and at most by 2.
        direction_error = 2 * norm(gradient.error, axis=-1) / np.maximum(norm(gradient.value, axis=-1), EPS)
        of_gradient = step * np.fmin(direction_error, 2.0)
        logs = np.full(before.shape[:-1], float(problem.d))
    else:
        logs = log_step + log_scale
        of_gradient = np.exp(np.minimum(logs, 700.0)) * norm(gradient.error, axis=-1)
    rounded_by = np.abs(after) + (8 + 2 * np.abs(logs))[..., None] * np.abs(moved)
    each = of_gradient + EPS * norm(rounded_by, axis=-1)
    p = exact(points)
    return Run(p, p[1:] - p[:-1], np.cumsum(each, axis=0))


def widen(x: Numbers, by: Float64[np.ndarray, "t b"]) -> Numbers:
    """Return a bounded array with its error bounds increased by ``by``; a plain array is returned unchanged."""
    return x.widen(by) if isinstance(x, Bounded) else x
