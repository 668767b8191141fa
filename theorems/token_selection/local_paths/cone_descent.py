"""Descent in an invariant cone: with a constant step size, and with the longest steps that keep inside.

At the norms where the cone begins a step of GD is often e^{−1000}: its iterates are kept as p(0) + w with w in
a scale of its own, so that no increment is lost however small. Steps as long as the invariance proof allows move
geometrically.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem
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


def descents(
    cone: InvariantCone,
    under_test: Implementation,
    starts: Points,
    log_step: float,
    most: Float64[np.ndarray, "steps b"],
) -> tuple[Descent, Descent]:
    """Gradient descent with step e^{log_step}, and longest steps (:func:`_longest`) of at most ``most``·‖p'‖.

    Both share the gradient evaluations, a batch of 2b per iteration.
    """
    problem, (steps, b), d = cone.constants.problem, most.shape, starts.shape[1]
    points, log_sizes = np.empty((steps + 1, 2 * b, d)), np.empty((steps, 2 * b))
    points[0] = np.concatenate([starts, starts])
    total, log_unit = np.zeros((b, d)), np.zeros(b)
    for s in range(steps):
        unit, log_norm = _descent_direction(under_test, problem, points[s])
        log_size = log_step + log_norm[:b]
        if s == 0:
            log_unit = np.where(np.isfinite(log_size), log_size, 0.0)
        total = total + np.exp(log_size - log_unit)[:, None] * unit[:b]
        length = _longest(cone, points[s, b:], unit[b:], most[s])
        log_sizes[s, :b] = log_size
        with np.errstate(divide="ignore"):
            log_sizes[s, b:] = np.log(length)
        points[s + 1, :b] = starts + np.exp(np.minimum(log_unit, 700.0))[:, None] * total
        points[s + 1, b:] = points[s, b:] + length[:, None] * unit[b:]
    return Descent(points[:, :b], log_sizes[:, :b]), Descent(points[:, b:], log_sizes[:, b:])


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


def _descent_direction(
    under_test: Implementation, problem: Problem, p: Points
) -> tuple[Points, Float64[np.ndarray, "b"]]:
    """−∇L/‖∇L‖ and log ‖∇L‖; 0 and −∞ where the gradient is exactly zero."""
    gradient = under_test.scaled_gradient(problem.keys, problem.scores, problem.loss, p)
    direction = np.asarray(gradient.direction)
    size = np.sqrt(np.sum(direction * direction, axis=-1))
    positive = size > 0
    safe = np.where(positive, size, 1.0)
    unit = np.where(positive[:, None], -direction / safe[:, None], 0.0)
    return unit, np.where(positive, np.asarray(gradient.log_scale) + np.log(safe), -np.inf)
