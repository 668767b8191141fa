"""Faults in the gradient flow: gradients are right, but the curve does not follow them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.flow import Flow, gradient_flow
from theorems.faults.fault import Faults, Kind
from theorems.faults.path_faults import SCALED, on_other_problem, with_another_loss, with_scaled_scores

FAULTS = Faults(Kind.RUN)
FLOW = ("theorem-2", gradient_flow)
"""The statement that catches the faults of this module, and the function that they replace."""
RightFlow = Callable[..., Flow]


def _with_points(flow: Flow, points: Array) -> Flow:
    return replace(flow, points=points, norms=np.linalg.norm(points, axis=1))


@FAULTS.plant("flow-from-elsewhere", "the flow begins at (1 + ε) times the start", *FLOW, size=1e-6)
def _from_elsewhere(right: RightFlow, size: float, problem: Problem, start: Array, **options: Any) -> Flow:
    return right(problem, (1 + size) * start, **options)


@FAULTS.change("flow-without-its-start", "the first recorded point equals the second", *FLOW)
def _drop_start(flow: Flow, *arguments: Any, **options: Any) -> Flow:
    points = np.array(flow.points)
    points[0] = points[1]
    return _with_points(flow, points)


@FAULTS.plant("flow-ends-half-way", "the flow ends at half of the requested norm", *FLOW)
def _end_half_way(right: RightFlow, problem: Problem, start: Array, *, norm: float, **options: Any) -> Flow:
    return right(problem, start, norm=norm / 2 if norm / 2 > np.linalg.norm(start) else norm, **options)


@FAULTS.change("flow-jumps-sideways", "every other recorded point lies ε ‖p‖ beside the curve", *FLOW, size=1e-2)
def _jump_sideways(flow: Flow, size: float, problem: Problem, *arguments: Any, **options: Any) -> Flow:
    """Move every other point sideways by ``size`` times its norm, and scale it back to its norm."""
    points = np.array(flow.points)
    if problem.d > 1:
        for k in range(1, len(points), 2):
            p = points[k]
            across = np.roll(p, 1) - (np.roll(p, 1) @ p) / (p @ p) * p
            length = np.linalg.norm(across)
            moved = p + (size * np.linalg.norm(p) / length if length > 0 else 0.0) * across
            points[k] = moved * (np.linalg.norm(p) / np.linalg.norm(moved))
    return _with_points(flow, points)


@FAULTS.change(
    "flow-on-the-ray",
    "beyond a given norm the curve is the ray of p_mm",
    *FLOW,
    size=10.0,
)
def _follow_ray(flow: Flow, size: float, problem: Problem, *arguments: Any, **options: Any) -> Flow:
    svm = max_margin(problem.keys, problem.optimal)
    far = flow.norms > size / problem.key_scale
    far[0] = False
    if not isinstance(svm, MaxMargin):
        return _with_points(flow, flow.points)
    return _with_points(flow, np.where(far[:, None], flow.norms[:, None] * svm.direction, flow.points))


@FAULTS.change("flow-interpolates", "every other recorded point lies on the chord of its neighbours", *FLOW)
def _interpolate(flow: Flow, *arguments: Any, **options: Any) -> Flow:
    points = np.array(flow.points)
    for k in range(2, len(points) - 1, 2):
        share = (flow.norms[k] - flow.norms[k - 1]) / (flow.norms[k + 1] - flow.norms[k - 1])
        points[k] = (1 - share) * flow.points[k - 1] + share * flow.points[k + 1]
    return _with_points(flow, points)


FAULTS.plant("flow-of-another-loss", "the flow is that of another loss", *FLOW, through=on_other_problem)(
    with_another_loss
)
FAULTS.plant("flow-of-other-scores", SCALED, *FLOW, size=1.0, through=on_other_problem)(with_scaled_scores)


@FAULTS.plant(
    "flow-of-other-keys",
    "the first coordinate of the keys is multiplied by 1 + ε",
    *FLOW,
    size=1e-2,
    through=on_other_problem,
)
def _scale_keys(problem: Problem, size: float) -> Problem:
    keys = np.array(problem.keys)
    keys[..., 0] *= 1 + size
    return Problem(keys, problem.scores, problem.loss)
