"""The gradient flow in arc length, dp/ds = −∇L/‖∇L‖, read at s = η t; its Euler scheme is normalized gradient descent.

:func:`reference_attention.training.flow.gradient_flow`, by which ``theorems bench`` decides the limit, records only the
point where each norm is first reached, and so misses parts where the norm falls. Therefore the same equation is
integrated here with points at any arc length s.

Limit: p_mm of the tokens that this flow selects, by the definition of the limit in ``theorems bench``. Once every
optimal logit exceeds the others by a number computed from the data, ``descent-from-a-margin`` proves this limit, with 1
− cos = O(log s/s).

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 2 to 4; scipy.integrate.LSODA.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64
from scipy.integrate import LSODA

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.arc_length import ABSOLUTE, ROUNDINGS
from reference_attention.training.flow import METHODS, RELATIVE
from reference_attention.training.iteration import single_field
from theorems.benchmark.optimisers.optimiser import Theory
from theorems.benchmark.optimisers.run import Run
from theorems.core.implementation import REFERENCE, Implementation

THEORY = Theory(2.0, "the limit is this flow's; descent-from-a-margin", exponent=1.0, proven=0.5)


def read_at(
    problems: Sequence[Problem],
    starts: Float64[np.ndarray, "b d"],
    step: float,
    iterations: Int64[np.ndarray, "r"],
    under_test: Implementation = REFERENCE,
) -> Run:
    """Return each flow's points at s = η t for iterations t, η = ``step``; failed flows are not representable."""
    flows = [_follow(*setup, step * iterations, under_test) for setup in zip(problems, starts, strict=True)]
    return Run(np.stack([points for points, _ in flows], axis=1), iterations, np.array([whole for _, whole in flows]))


def _follow(
    problem: Problem, start: Float64[np.ndarray, "d"], at: Float64[np.ndarray, "r"], under_test: Implementation
) -> tuple[Float64[np.ndarray, "r d"], bool]:
    field = single_field(problem.keys, problem.scores, problem.loss, under_test[scaled_gradient])
    kappa, long = problem.key_scale, float(at[-1])

    def velocity(u: float, p: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "d"]:
        direction = field(p)[1]
        length = math.sqrt(direction @ direction)
        return -math.exp(u) / kappa / length * direction if length else 0 * p

    # As in gradient_flow, the variable is u = log(1 + κ s), and tolerances are above the rounding of the logits.
    absolute = max(ABSOLUTE / kappa, ROUNDINGS * EPS * (long + float(np.linalg.norm(start))))
    times = np.log1p(kappa * at)
    points, done = np.repeat(start[None], len(at), axis=0), int(np.searchsorted(times, 0.0, side="right"))
    solver = LSODA(velocity, 0.0, np.array(start), float(times[-1]), rtol=RELATIVE, atol=absolute)
    for _ in range(METHODS["LSODA"][1]):
        solver.step()
        if solver.status == "failed" or not np.isfinite(solver.y).all():
            break
        passed = int(np.searchsorted(times, solver.t, side="right"))
        if passed > done:
            points[done:passed] = solver.dense_output()(times[done:passed]).T
            done = passed
        if solver.status == "finished":
            points[done:] = solver.y
            return points, True
    points[done:] = points[max(done - 1, 0)]
    return points, False
