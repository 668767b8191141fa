"""Descent in an invariant cone: with a constant step size, and with the longest steps that keep inside.

At the norms where the cone begins a step of GD is often e^{−1000}, and its iterates do not differ as floats; the
claims add its increments up in a scale of their own. Steps as long as the invariance proof allows move geometrically.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem
from reference_attention.training.iteration import batch_field
from theorems.core.implementation import Implementation
from theorems.token_selection.local_paths.invariant_cone import InvariantCone

SAFETY = 0.99
"""Share of the longest step that is taken, so that rounding cannot carry an iterate out."""

Points = Float64[np.ndarray, "b d"]


@dataclass(frozen=True, eq=False)
class Descent:
    """t steps from b starts.

    Attributes:
        points: p(0) … p(t), rounded, (t+1, b, d).
        log_sizes: log ‖p(s+1) − p(s)‖, (t, b); −inf for no step.
    """

    points: Float64[np.ndarray, "records b d"]
    log_sizes: Float64[np.ndarray, "t b"]


def descent(problem: Problem, under_test: Implementation, starts: Points, log_step: float, steps: int) -> Descent:
    """The gradient descent under test with step e^{log_step}."""
    run = under_test.gradient_descent(
        problem, starts, steps=steps, log_step=log_step, gradient=under_test.scaled_gradient
    )
    return Descent(run.points, log_step + run.log_gradient_norm[:-1])


def longest_steps(
    cone: InvariantCone, under_test: Implementation, starts: Points, most: Float64[np.ndarray, "steps b"]
) -> Descent:
    """Longest steps (:func:`_longest`) against the gradient under test, of at most ``most``·‖p'‖."""
    points, lengths = np.empty((len(most) + 1, *starts.shape)), np.empty(most.shape)
    points[0] = starts
    problem = cone.constants.problem
    field = batch_field(problem.keys, problem.scores, problem.loss, under_test.scaled_gradient, starts.shape[:1])
    for s in range(len(most)):
        unit = _descent_direction(field(points[s])[1])
        lengths[s] = _longest(cone, points[s], unit, most[s])
        points[s + 1] = points[s] + lengths[s][:, None] * unit
    with np.errstate(divide="ignore"):
        return Descent(points, np.log(lengths))


def _longest(cone: InvariantCone, p: Points, unit: Points, most: Float64[np.ndarray, "b"]) -> Float64[np.ndarray, "b"]:
    """The longest step along ``unit`` that the proof of invariance allows.

    With A = ⟨unit, p̄_mm⟩ and η = ‖Δ‖/‖p'‖, (***) reads μ − ν' + η c − (1−μ)η²/2 ≥ 0 for
    c = [1 − (1−μ)(1 + κ/ρ' − ν')] A: η is the larger root, and p + Δ is in the cone if (L3') holds at p.
    """
    constants, axis, mu = cone.constants, cone.constants.solution.direction, cone.constants.mu
    moved = p - cone.tip
    length = np.sqrt(np.sum(moved * moved, axis=1))
    apart = moved / length[:, None] - axis
    nu = np.sum(apart * apart, axis=1) / 2
    drift = (1 - (1 - mu) * (1 + cone.kappa * constants.norm / length - nu)) * (unit @ axis)
    root = (drift + np.sqrt(drift * drift + 2 * (1 - mu) * np.maximum(mu - nu, 0.0))) / (1 - mu)
    return np.asarray(np.minimum(SAFETY * np.maximum(root, 0.0), most) * length)


def growth(steps: int, factor: float, starts: int) -> Float64[np.ndarray, "steps b"]:
    """Largest relative steps: equal ones in even columns, falling like 1/s in odd ones; each grows by ``factor``."""
    even = np.full(steps, math.log(factor) / steps)
    falling = 1 / (np.arange(steps) + 20.0)
    odd = falling * (math.log(factor) / falling.sum())
    return np.stack([even if k % 2 == 0 else odd for k in range(starts)], axis=1)


def _descent_direction(direction: Points) -> Points:
    """−∇L/‖∇L‖; 0 where the gradient is exactly zero."""
    size = np.sqrt(np.sum(direction * direction, axis=-1))
    positive = size > 0
    return np.where(positive[:, None], -direction / np.where(positive, size, 1.0)[:, None], 0.0)
