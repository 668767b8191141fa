"""How many iterations a rule needs until its direction is, and stays, that of its limit.

The limit is p_mm of the tokens that the gradient flow from the same start selects: on several inputs or with unequal
scores that may be a local one (Theorem 3), and a rule with long steps may select other tokens than the flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, locally_optimal
from reference_attention.training.descent import Stop, Trajectory
from reference_attention.training.flow import Flow, gradient_flow
from theorems.benchmark.proven import proven
from theorems.core.implementation import REFERENCE, Implementation

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""The levels of 1 − cos."""
FAR = 1e6
"""Norm to which the flow is followed, in units of 1/(largest key) and of ‖p(0)‖."""


class Kind(StrEnum):
    """What the flow selects."""

    GLOBAL = "GMM"
    """The optimal token of every input."""
    LOCAL = "LMM"
    """Other tokens, locally optimal ones (Definition 2)."""


@dataclass(frozen=True, eq=False)
class Limit:
    """Where the gradient flow from a start goes.

    Attributes:
        svm: p_mm of the tokens that it selects.
        kind: which tokens those are.
    """

    svm: MaxMargin
    kind: Kind


@dataclass(frozen=True)
class Measured:
    """One run of a rule on one problem.

    Attributes:
        rule: its name.
        iterations: for each of :data:`LEVELS` the first iteration from which on 1 − cos stays at or below it, up to the
            cap; ``None`` where there is none.
        norm: ‖p‖ at the cap.
        one_minus_cosine: 1 − cos to the limit at the cap.
        at_most: what is proven of it, see :func:`theorems.benchmark.proven.proven`; ``None`` where nothing is.
        selected: the token of largest weight of each input at the cap.
        selects_limit: whether those are the tokens of the limit.
        representable: whether every step was; a step too long for float64 ends a run where it is.
    """

    rule: str
    iterations: tuple[int | None, ...]
    norm: float
    one_minus_cosine: float
    at_most: float | None
    selected: tuple[int, ...]
    selects_limit: bool
    representable: bool


def limit_of(problem: Problem, start: Float64[np.ndarray, "d"], under_test: Implementation = REFERENCE) -> Limit | str:
    """The limit of the flow's direction, or why it has none: finite stationary points are no limits of a direction.

    The flow must have come within √(1/ρ) of p̄_mm at norm ρ (in units of ‖p_mm‖), the distance that tolerance
    ``limit-followed`` allows; a direction that converges is O(log ρ/ρ) away.
    """
    flow = gradient_flow(problem, start, norm=far(problem, start), gradient=under_test.scaled_gradient)
    return limit_of_flow(problem, flow, under_test)


def far(problem: Problem, start: Float64[np.ndarray, "d"]) -> float:
    """The norm to which a flow from ``start`` is followed."""
    return FAR * max(1 / problem.key_scale, float(np.linalg.norm(start)))


def limit_of_flow(problem: Problem, flow: Flow, under_test: Implementation = REFERENCE) -> Limit | str:
    """As :func:`limit_of`, of a flow that was followed."""
    if not flow.reached:
        return f"the flow is {flow.stop} at norm {flow.norms[-1]:.3g}" if flow.stop is Stop.STATIONARY else flow.reason
    alpha = problem.selected_by(flow.final)
    svm = under_test.max_margin(problem.exact_keys, alpha)
    if not isinstance(svm, MaxMargin):
        return f"the flow selects {alpha.tolist()}, which cannot be separated"
    apart = float(np.sqrt(2 * flow.one_minus_cosine(svm.direction)[-1]))
    if not apart <= (flow.norms[-1] / svm.norm) ** -0.5:
        return f"the flow is {apart:.1e} from the direction of the tokens that it selects at norm {flow.norms[-1]:.3g}"
    if np.array_equal(alpha, problem.optimal):
        return Limit(svm, Kind.GLOBAL)
    if not locally_optimal(svm, problem.scores):
        return f"the flow selects {alpha.tolist()}, which is not locally optimal"
    return Limit(svm, Kind.LOCAL)


def measured(rule: str, run: Trajectory, problems: list[Problem], limits: list[Limit]) -> list[Measured]:
    """What came of a batch of runs, one per problem; the batch axis is the second of ``run.points``, all iterates."""
    apart = run.one_minus_cosine(np.stack([limit.svm.direction for limit in limits]))
    found = []
    for b, (problem, limit) in enumerate(zip(problems, limits, strict=True)):
        selected = problem.selected_by(run.final[b])
        found.append(
            Measured(
                rule,
                tuple(first_within(apart[:, b], run.iterations, level) for level in LEVELS),
                float(run.norms[-1, b]),
                float(apart[-1, b]),
                proven(problem, limit.svm, run.points[:, b]),
                tuple(selected.tolist()),
                bool(np.array_equal(selected, limit.svm.alpha)),
                bool(run.representable[b]),
            )
        )
    return found


def first_within(apart: Float64[np.ndarray, "r"], iterations: Int64[np.ndarray, "r"], level: float) -> int | None:
    """The first iteration from which on ``apart`` stays at or below ``level``; a NaN (at p = 0) is above."""
    above = np.flatnonzero(~(apart <= level))
    first = int(above[-1]) + 1 if len(above) else 0
    return int(iterations[first]) if first < len(apart) else None
