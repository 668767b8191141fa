"""The paper's conclusions about gradient descent, judged on the gradient flow p(t) when ‖p(t)‖ is 10⁶.

This module uses no assumption of the paper, so that statements with an assumption left out can use it.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, max_margin
from reference_attention.training.descent import Stop, normalized_gradient_descent
from reference_attention.training.flow import Flow, gradient_flow
from theorems.core.claim import Claim, Form, undecided_claim
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT, tolerance

LIMIT_FOLLOWED = tolerance(
    "limit-followed",
    "ρ^{−1/2}, where ρ is the norm in units of ‖p_mm‖ (or of 1/max|k_iα − k_it|)",
    "followed: if a direction or a selection converges, its distance from the limit is O(log ρ/ρ); for a counterexample"
    " this distance must exceed a hundred times ρ^{−1/2} at norm 10⁶, and must not have halved since norm 10³",
)

NORM = 1e6
"""Norm of p to which a limit is followed, in units of ‖p_mm‖ or ‖p(0)‖, whichever is larger.

If p_mm does not exist, about 1/(largest |entry| of the keys) is the unit instead of ‖p_mm‖."""
EARLIER = 1e3
"""Earlier norm at which the distance from the limit is measured, too: a distance that still shrinks is no violation."""
WALK = 96
"""Number of steps of the short run of normalized descent that guides a search."""
CLEAR = 0.05
"""If a short run ends at p, a search follows the flow only if −min (k_iα − k_it)·p/‖p‖ > CLEAR·max |entry of keys|."""


@dataclass(frozen=True)
class Point:
    """Point p that descent has reached.

    Attributes:
        problem: the problem whose risk decreases.
        p: the point, (d,).
    """

    problem: Problem
    p: Float64[np.ndarray, "d"]

    def smallest_margin(self, alpha: Int64[np.ndarray, "n"]) -> float:
        """Return min (k_iα − k_it)·p/‖p‖ over i and t ≠ α_i, or 0 if p = 0; negative if p prefers another token."""
        rows = _rows(self.problem, alpha)
        size = float(np.linalg.norm(self.p))
        return float((rows @ self.p).min()) / size if size else 0.0


def walk(case: Case) -> Point:
    """Return the point that normalized descent with growing steps, :data:`WALK` in all, reaches from the start."""
    p = start_of(case)
    size = 1 / case.problem.key_scale
    for step in (0.25 * size, size, 4 * size, 16 * size):
        p = normalized_gradient_descent(case.problem, p, steps=WALK // 4, step=step, record_every=WALK).final
    return Point(case.problem, p)


def start_of(case: Case) -> Float64[np.ndarray, "d"]:
    """Return the case's start p(0), (d,), or zeros if it has none."""
    return case.start if case.start is not None else np.zeros(case.problem.d)


def follow_flow(problem: Problem, start: Float64[np.ndarray, "d"], unit: float) -> Flow:
    """Follow the gradient flow from ``start`` until ‖p‖ is :data:`NORM` times the larger of ``unit`` and ‖start‖."""
    return gradient_flow(problem, start, norm=NORM * max(unit, float(np.linalg.norm(start))))


def norm_claim(flow: Flow, unit: float) -> Claim:
    """Claim that ‖p(t)‖ → ∞: the flow must reach the requested norm; a finite stationary point refutes the claim.

    A stationary point at a norm beyond :data:`NORM` times ``unit`` leaves the claim undecided: the flow may move by
    less than float64 resolves.
    """
    detail = f"‖p‖ = {flow.norms[-1]:.6g} after an arc of {flow.arc_length[-1]:.6g}, {flow.stop.value}"
    if flow.stop is Stop.FAILED:
        detail = f"the flow was not followed: {flow.reason}"
        return undecided_claim("norm-diverges", detail, Form.LIMIT)
    if flow.stop is Stop.STATIONARY and flow.norms[-1] >= NORM * unit:
        return undecided_claim("norm-diverges", detail, Form.LIMIT)
    return Claim("norm-diverges", Form.LIMIT, 0.0 if flow.reached_norm else -1.0, 0.0, EXACT, detail)


def direction_claim(name: str, flow: Flow, target: Float64[np.ndarray, "d"], unit: float) -> Claim:
    """Claim that the flow's direction p(t)/‖p(t)‖ converges to the direction of ``target``.

    The claim is judged at the last norm of p and at a thousandth of this norm. If the direction converges, it is O(log
    ρ/ρ) from its limit at the norm ρ (in units of ``unit``); ρ^{−1/2} is allowed. The claim is violated if the distance
    is larger at the last norm, and has not halved since a thousandth of this norm.
    """
    apart = np.sqrt(2 * flow.one_minus_cosine(target))
    rho = flow.norms[-1] / unit
    before = apart[int(np.argmin(np.abs(np.log(np.maximum(flow.norms, 1e-300) / flow.norms[-1] * (NORM / EARLIER)))))]
    detail = f"1 − cos = {flow.one_minus_cosine(target)[-1]:.12g} at ‖p‖ = {flow.norms[-1]:.6g}"
    if apart[-1] < before / 2:
        return Claim(
            name, Form.LIMIT, 0.0, 0.0, LIMIT_FOLLOWED, detail, undecided="" if apart[-1] < rho**-0.5 else detail
        )
    return Claim(name, Form.LIMIT, -float(apart[-1]), float(rho**-0.5), LIMIT_FOLLOWED, detail)


def selection_claim(problem: Problem, p: Float64[np.ndarray, "d"], alpha: Int64[np.ndarray, "n"]) -> Claim:
    """Claim that every α_i has the largest logit: min (k_iα − k_it)·p/‖p‖ ≥ 0, per max |entry of k_iα − k_it|."""
    least = Point(problem, p).smallest_margin(alpha)
    reach = float(np.abs(_rows(problem, alpha)).max())
    detail = f"the smallest (k_iα − k_it)·p/‖p‖ is {least:.12g}"
    return Claim(
        "selects-the-tokens",
        Form.LIMIT,
        least / reach,
        float(np.linalg.norm(p) * reach) ** -0.5,
        LIMIT_FOLLOWED,
        detail,
    )


def direction_claims(
    problem: Problem, start: Float64[np.ndarray, "d"], under_test: Implementation, alpha: Int64[np.ndarray, "n"]
) -> Iterator[Claim]:
    """Yield the claims ‖p(t)‖ → ∞, p(t) selects α, and p(t)/‖p(t)‖ → p̄_mm(α) on the flow p(t) from ``start``.

    p̄_mm(α) is the max-margin direction of the tokens α.
    """
    svm = under_test[max_margin](problem.keys, alpha)
    unit = 1 / problem.key_scale if isinstance(svm, Infeasible) else svm.norm
    flow = follow_flow(problem, start, unit)
    norm = norm_claim(flow, unit)
    yield norm
    if not flow.reached_norm:
        return
    yield selection_claim(problem, flow.final, alpha)
    if not isinstance(svm, Infeasible):
        yield direction_claim("direction-is-max-margin", flow, svm.p, unit)


def turns_to_chosen_tokens(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims of :func:`direction_claims` for the case's start and the case's chosen tokens."""
    yield from direction_claims(case.problem, start_of(case), under_test, case.chosen_tokens)


def _rows(problem: Problem, alpha: Int64[np.ndarray, "n"]) -> Float64[np.ndarray, "m d"]:
    """Return the differences k_iα − k_it for all inputs i and tokens t ≠ α_i, as rows, (m, d)."""
    rows = np.take_along_axis(problem.keys, alpha[:, None, None], axis=1) - problem.keys
    others = np.arange(problem.T) != alpha[:, None]
    return np.asarray(rows[others])
