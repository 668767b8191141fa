"""Runs of the reference's rules from each start, up to the norm at the edge of the picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.training.descent import gradient_descent, normalized_gradient_descent
from reference_attention.training.flow import gradient_flow
from reference_attention.training.steepest_descent import steepest_descent
from theorems.benchmark.optimisers.muon import MOMENTUM
from theorems.benchmark.rules import rule_named
from theorems.explore.state import State

STEPS = 200
"""Number of steps of rules with steps of constant length; the length is chosen so that runs reach the edge."""
SMOOTH_STEPS = 400
"""Number of steps of gradient descent, whose steps become arbitrarily short."""
RECORDS = 50
"""Number of points of a run that are stored."""


@dataclass(frozen=True, eq=False)
class Run:
    """The run of a rule from one start.

    Attributes:
        rule: the name of the rule in :data:`RULES`.
        start: the number of the start.
        points: the recorded p, or vec(W), shape (r, p).
        steps: the step of each point, shape (r,); for the flow the number of the record.
        how: the step size in words; for the flow, why it ended.
    """

    rule: str
    start: int
    points: Float64[np.ndarray, "r p"]
    steps: Int64[np.ndarray, "r"]
    how: str

    @property
    def norms(self) -> Float64[np.ndarray, "r"]:
        """Return ‖p‖ of each point, (r,)."""
        return np.asarray(np.linalg.norm(self.points, axis=1))


Follow = Callable[[State, float], list[Run]]
"""Function (state, ‖p‖ at the edge of the picture) → the runs of a rule, one from every start."""


def _flow(state: State, norm: float) -> list[Run]:
    runs = []
    for k, start in enumerate(state.starts):
        begin = float(np.linalg.norm(start))
        end = max(norm, 2 * begin)
        record = np.linspace(begin, end, RECORDS + 1)[1:]
        flow = gradient_flow(state.case.problem, start, norm=end, record=record)
        runs.append(Run("flow", k, flow.points, np.arange(len(flow.points)), str(flow.stop)))
    return runs


def _descent(state: State, norm: float) -> list[Run]:
    problem = state.case.problem
    run = gradient_descent(problem, state.starts, steps=SMOOTH_STEPS, record_every=SMOOTH_STEPS // RECORDS)
    description = f"{SMOOTH_STEPS} steps, η = 1/L_p = {math.exp(-problem.log_smoothness):.3g}"
    return _from_every_start("gradient descent", run.points, run.iterations, description)


def _normalized_descent(state: State, norm: float) -> list[Run]:
    step, every = norm / STEPS, STEPS // RECORDS
    run = normalized_gradient_descent(state.case.problem, state.starts, steps=STEPS, step=step, record_every=every)
    description = f"{STEPS} steps of length {step:.3g}"
    return _from_every_start("normalized descent", run.points, run.iterations, description)


def _sign(state: State, norm: float) -> list[Run]:
    step = norm / STEPS / math.sqrt(state.starts.shape[1])
    points = steepest_descent(state.case.problem, state.starts, lengths=np.full(STEPS, step), norm=math.inf)
    recorded = np.arange(0, STEPS + 1, STEPS // RECORDS)
    description = f"{STEPS} steps of {step:.3g} in every coordinate"
    return _from_every_start("sign descent", points[recorded], recorded, description)


def _muon(state: State, norm: float) -> list[Run]:
    step = norm / STEPS / math.sqrt(min(state.shape) if len(state.shape) == 2 else 1)
    problems = [state.case.problem] * len(state.starts)
    rule = rule_named(f"muon-{step!r}")
    run = rule.run(problems, state.starts, STEPS, shape=state.shape, record_every=STEPS // RECORDS)
    description = f"{STEPS} steps of {step:.3g} in every singular direction, momentum {MOMENTUM:g}"
    return _from_every_start("Muon", run.points, run.iterations, description)


def _from_every_start(
    rule: str, points: Float64[np.ndarray, "r s p"], steps: Int64[np.ndarray, "r"], description: str
) -> list[Run]:
    return [Run(rule, k, points[:, k], steps, description) for k in range(points.shape[1])]


RULES: dict[str, Follow] = {
    "flow": _flow,
    "gradient descent": _descent,
    "normalized descent": _normalized_descent,
    "sign descent": _sign,
    "Muon": _muon,
}
"""The rules by their names on the page."""
