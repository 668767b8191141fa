"""A run of gradient descent, normalized or not, and by how much it drifts from an exact one.

:mod:`theorems.curves.descent` says the same coordinate by coordinate, at the iterates looked at; here it is said of the
length, at all of them.
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
from theorems.rounding.steps import starts_claim, steps_claim


@dataclass(frozen=True, eq=False)
class Run:
    """Iterates and steps, with what rounding makes of them.

    Attributes:
        p: p(0) … p(t), floats, (t + 1, b, d).
        moved: the steps between them, (t, b, d).
        drift: Σ_{s<t} of by how much a step may differ from −η∇L, (t, b).
    """

    p: Numbers
    moved: Numbers
    drift: Float64[np.ndarray, "t b"]


def is_a_run(
    problem: Problem,
    under_test: Implementation,
    found: Trajectory,
    starts: Float64[np.ndarray, "b d"],
    steps: int,
    step: float | Float64[np.ndarray, "b"],
    names: tuple[ClaimName, ClaimName],
    first: str,
) -> Generator[Claim, None, Run]:
    """That it is one; then the run: ``run = yield from is_a_run(…)``.

    Args:
        steps: how many were asked for.
        step: log η, or the length of a normalized step.
        names: of the premises.
        first: what is undecided where a step overflows.
    """
    asked_for, is_a_step = names
    asked = starts_claim(asked_for, found.points, starts, steps)
    yield asked
    if asked.verdict is Verdict.FALSIFIED:
        raise Ended(asked_for)
    if found.stop is Stop.OVERFLOW:
        raise Undecided(first, "a step overflows float64", Form.EFFECTIVE)
    return (yield from are_steps(problem, under_test, found.points, step, is_a_step))


def are_steps(
    problem: Problem,
    under_test: Implementation,
    points: Float64[np.ndarray, "t b d"],
    step: float | Float64[np.ndarray, "*t b"],
    is_a_step: ClaimName,
) -> Generator[Claim, None, Run]:
    """That each iterate is a step from the one before; then the run.

    Args:
        step: log η, one per start or per step and start, or the length of a normalized step.
        is_a_step: the name of the premise.
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
        # |g/|g| − h/|h|| ≤ 2|g − h|/|g|, and 2 where nothing is known of g.
        off = 2 * norm(gradient.error, axis=-1) / np.maximum(norm(gradient.value, axis=-1), EPS)
        of_gradient = step * np.fmin(off, 2.0)
        logs = np.full(before.shape[:-1], float(problem.d))
    else:
        logs = log_step + log_scale
        of_gradient = np.exp(np.minimum(logs, 700.0)) * norm(gradient.error, axis=-1)
    rounded_by = np.abs(after) + (8 + 2 * np.abs(logs))[..., None] * np.abs(moved)
    each = of_gradient + EPS * norm(rounded_by, axis=-1)
    p = exact(points)
    return Run(p, p[1:] - p[:-1], np.cumsum(each, axis=0))


def widen(x: Numbers, by: Float64[np.ndarray, "t b"]) -> Numbers:
    """With more room, where it is no plain float."""
    return x.widen(by) if isinstance(x, Bounded) else x
