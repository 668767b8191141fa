"""Faults in the gradient flow: the gradient at every recorded point is right, and the curve is no flow of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training import flow as reference
from reference_attention.training.flow import Flow
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Change = Callable[[Flow, Problem, float], Array]


@dataclass(frozen=True)
class MovedPoints:
    """The right flow with other points: (flow, problem, size) → points. Called with a size it makes the fault."""

    change: Change
    size: float = 0.0

    def gradient_flow(self, problem: Problem, start: Array, **asked: Any) -> Flow:
        """As :func:`reference_attention.training.flow.gradient_flow`."""
        right = reference.gradient_flow(problem, start, **asked)
        points = self.change(right, problem, self.size)
        return replace(right, points=points, norms=np.linalg.norm(points, axis=1))

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", gradient_flow=MovedPoints(self.change, size).gradient_flow)


@dataclass(frozen=True)
class OtherFlow:
    """The flow of another question: (problem, start, norm, size) → those. Called with a size it makes the fault."""

    change: Callable[[Problem, Array, float, float], tuple[Problem, Array, float]]
    size: float = 0.0

    def gradient_flow(self, problem: Problem, start: Array, *, norm: float, **asked: Any) -> Flow:
        """As :func:`reference_attention.training.flow.gradient_flow`."""
        problem, start, norm = self.change(problem, start, norm, self.size)
        return reference.gradient_flow(problem, start, norm=norm, **asked)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", gradient_flow=OtherFlow(self.change, size).gradient_flow)


def _sideways(flow: Flow, problem: Problem, size: float) -> Array:
    """Every other point, at the same norm."""
    points = np.array(flow.points)
    if problem.d > 1:
        for k in range(1, len(points), 2):
            p = points[k]
            across = np.roll(p, 1) - (np.roll(p, 1) @ p) / (p @ p) * p
            length = np.linalg.norm(across)
            moved = p + (size * np.linalg.norm(p) / length if length > 0 else 0.0) * across
            points[k] = moved * (np.linalg.norm(p) / np.linalg.norm(moved))
    return points


def _on_the_ray(flow: Flow, problem: Problem, size: float) -> Array:
    """From a norm on."""
    found = max_margin(problem.keys, problem.optimal)
    far = flow.norms > size / problem.key_scale
    far[0] = False
    if not isinstance(found, MaxMargin):
        return flow.points
    return np.where(far[:, None], flow.norms[:, None] * found.direction, flow.points)


def _interpolate(flow: Flow, problem: Problem, size: float) -> Array:
    """Every other point, on the chord of its neighbours."""
    points = np.array(flow.points)
    for k in range(2, len(points) - 1, 2):
        share = (flow.norms[k] - flow.norms[k - 1]) / (flow.norms[k + 1] - flow.norms[k - 1])
        points[k] = (1 - share) * flow.points[k - 1] + share * flow.points[k + 1]
    return points


def _start_missing(flow: Flow, problem: Problem, size: float) -> Array:
    points = np.array(flow.points)
    points[0] = points[1]
    return points


def _elsewhere(problem: Problem, start: Array, norm: float, size: float) -> tuple[Problem, Array, float]:
    return problem, (1 + size) * start, norm


def _half_way(problem: Problem, start: Array, norm: float, size: float) -> tuple[Problem, Array, float]:
    return problem, start, norm / 2 if norm / 2 > np.linalg.norm(start) else norm


def _other_loss(problem: Problem, start: Array, norm: float, size: float) -> tuple[Problem, Array, float]:
    name = "correlation" if problem.loss.name != "correlation" else "exponential"
    return Problem(problem.keys, problem.scores, loss_named(name)), start, norm


def _other_scores(problem: Problem, start: Array, norm: float, size: float) -> tuple[Problem, Array, float]:
    scores = np.array(problem.scores)
    scores[0] *= 1 + size
    return Problem(problem.keys, scores, problem.loss), start, norm


def _other_keys(problem: Problem, start: Array, norm: float, size: float) -> tuple[Problem, Array, float]:
    keys = np.array(problem.keys)
    keys[..., 0] *= 1 + size
    return Problem(keys, problem.scores, problem.loss), start, norm


FLOW_FAULTS = (
    Fault(
        "flow-from-elsewhere",
        Kind.RUN,
        "the flow begins at (1 + ε) times the start",
        "theorem-2",
        OtherFlow(_elsewhere),
        1e-6,
        "ε",
    ),
    Fault(
        "flow-without-its-start",
        Kind.RUN,
        "the first recorded point is the second",
        "theorem-2",
        MovedPoints(_start_missing),
    ),
    Fault("flow-ends-half-way", Kind.RUN, "the flow ends at half of the norm", "theorem-2", OtherFlow(_half_way)),
    Fault(
        "flow-jumps-sideways",
        Kind.RUN,
        "every other recorded point lies ε ‖p‖ beside the curve",
        "theorem-2",
        MovedPoints(_sideways),
        1e-2,
        "ε",
    ),
    Fault(
        "flow-on-the-ray",
        Kind.RUN,
        "from a norm on the curve is the ray of p_mm",
        "theorem-2",
        MovedPoints(_on_the_ray),
        10.0,
        "the norm in units of 1/max|k|",
    ),
    Fault(
        "flow-interpolates",
        Kind.RUN,
        "every other recorded point lies on the chord of its neighbours",
        "theorem-2",
        MovedPoints(_interpolate),
    ),
    Fault(
        "flow-of-another-loss",
        Kind.RUN,
        "the flow of another loss",
        "theorem-2",
        OtherFlow(_other_loss),
    ),
    Fault(
        "flow-of-other-scores",
        Kind.RUN,
        "the first input's scores are (1 + ε) times as large",
        "theorem-2",
        OtherFlow(_other_scores),
        1.0,
        "ε",
    ),
    Fault(
        "flow-of-other-keys",
        Kind.RUN,
        "the keys' first coordinate is (1 + ε) times as large",
        "theorem-2",
        OtherFlow(_other_keys),
        1e-2,
        "ε",
    ),
)
"""Faults in the gradient flow."""
