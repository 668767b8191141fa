"""Faults in the loop of gradient descent: gradients are right, but the iterates do not follow them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.problem import Problem
from reference_attention.training.descent import Trajectory, gradient_descent, normalized_gradient_descent
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.RUN)
DESCENTS = (gradient_descent, normalized_gradient_descent)
Descent = Callable[..., Trajectory]
Rule = Callable[..., Array]
"""A function that returns the next iterate from p, the right step at p, the fault's size (if it has one), the iteration
t and the right step before."""


def _with_points(run: Trajectory, points: Array) -> Trajectory:
    """Return the run with other iterates; other records (norms, times, …) are cut to the number of iterates."""
    r = len(points)
    return replace(
        run,
        points=points,
        iterations=run.iterations[:r],
        norms=np.linalg.norm(points, axis=-1),
        log_gradient_norm=run.log_gradient_norm[:r],
        log_time=run.log_time[:r],
    )


def _run(rule: Rule, right: Descent, *arguments: Any, steps: int, **options: Any) -> Trajectory:
    """Run plain or normalized descent with a wrong ``rule`` in place of p + step."""
    *size, problem, start = arguments
    p = np.array(start, dtype=np.float64)
    points, last = [p], np.zeros_like(p)
    for t in range(steps):
        step = right(problem, p, steps=1, **options).final - p
        p, last = rule(p, step, *size, t, last), step
        points.append(p)
    return _with_points(right(problem, start, steps=steps, **options), np.array(points))


def _rule(name: str, says: str, caught_by: str, **further: Any) -> Callable[[Rule], Rule]:
    """Return a decorator that plants the decorated rule, see :data:`Rule`, in plain and in normalized descent."""
    return FAULTS.plant(name, says, caught_by, *DESCENTS, through=_run, **further)


@_rule(
    "descent-stops-far-out",
    "iterates stay where they are once ‖p‖ exceeds a bound",
    "theorem-2",
    size=10.0,
)
def _stop_far_out(p: Array, step: Array, bound: float, *at: Any) -> Array:
    return np.where(np.linalg.norm(p, axis=-1, keepdims=True) > bound, p, p + step)


@_rule("descent-coordinate-longer", "the step size is (1 + ε) η in the first coordinate", "lemma-1", size=0.3)
def _lengthen_a_coordinate(p: Array, step: Array, size: float, *at: Any) -> Array:
    longer = np.array(step)
    longer[..., 0] *= 1 + size
    return p + longer


@_rule("descent-with-momentum", "β times the previous step is added to each step (momentum)", "lemma-1", size=0.1)
def _add_momentum(p: Array, step: Array, size: float, t: int, last: Array) -> Array:
    return p + step + size * last


@_rule("descent-step-decays", "the step size is η/(1 + ε t) at iteration t", "lemma-1", size=1e-2)
def _decay_step(p: Array, step: Array, size: float, t: int, last: Array) -> Array:
    return p + step / (1 + size * t)


@_rule("descent-skips-a-step", "the eleventh step is skipped", "lemma-6")
def _skip_a_step(p: Array, step: Array, t: int, last: Array) -> Array:
    return p if t == 10 else p + step


@_rule(
    "descent-decays-weights",
    "p is multiplied by 1 − λ before each step (decoupled weight decay)",
    "lemma-1",
    size=1e-3,
)
def _decay_weights(p: Array, step: Array, size: float, *at: Any) -> Array:
    return (1 - size) * p + step


@_rule("descent-clips-steps", "steps longer than ε ‖p‖ are halved", "lemma-1", size=1e-2)
def _clip_step(p: Array, step: Array, size: float, *at: Any) -> Array:
    length = np.linalg.norm(step, axis=-1, keepdims=True)
    longest = size * np.linalg.norm(p, axis=-1, keepdims=True)
    return p + np.where(length > longest, 0.5, 1.0) * step


@FAULTS.plant("descent-from-zero", "the run starts at 0, not at p(0)", "lemma-1", *DESCENTS)
def _from_zero(right: Descent, problem: Problem, start: Array, **options: Any) -> Trajectory:
    return right(problem, np.zeros_like(start), **options)


@FAULTS.plant("descent-from-elsewhere", "the run starts at (1 + ε) p(0)", "lemma-1", *DESCENTS, size=1e-6)
def _from_elsewhere(right: Descent, size: float, problem: Problem, start: Array, **options: Any) -> Trajectory:
    return right(problem, (1 + size) * start, **options)


@FAULTS.change("descent-one-step-short", "the last iterate is not returned", "theorem-2", *DESCENTS)
def _drop_last(run: Trajectory, *arguments: Any, **options: Any) -> Trajectory:
    return _with_points(run, run.points[:-1])


@FAULTS.change("descent-averages", "running means of the iterates are returned", "lemma-1", *DESCENTS)
def _average(run: Trajectory, *arguments: Any, **options: Any) -> Trajectory:
    counts = np.arange(1.0, len(run.points) + 1).reshape(-1, *([1] * (run.points.ndim - 1)))
    return _with_points(run, np.cumsum(run.points, axis=0) / counts)


@FAULTS.change(
    "normalized-with-floor",
    "steps are along ∇L/(‖∇L‖ + ε), not ∇L/‖∇L‖",
    "theorem-2",
    normalized_gradient_descent,
    size=1e-3,
)
def _floor_norm(
    run: Trajectory, size: float, problem: Problem, start: Array, *, steps: int, step: float, gradient: Any
) -> Trajectory:
    points = np.array(run.points)
    for t in range(steps):
        g = gradient(problem.keys, problem.scores, problem.loss, points[t])
        direction = np.asarray(g.direction)
        # ε in the unit of the gradient, so that nothing overflows or underflows.
        floor = np.exp(math.log(size) - np.maximum(np.asarray(g.log_scale), -700.0))
        length = np.sqrt(np.sum(direction * direction, axis=-1)) + floor
        points[t + 1] = points[t] - step * direction / length[..., None]
    return _with_points(run, points)
