"""The first-order term of the risk along a direction, with an explicit remainder: the sharp form of Lemmas 8 and 9.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 8 and 9, equation (63).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.directions import Direction
from reference_attention.floats import EPS
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.token_selection.directions.directional_risk import LOG2, Costs, float_of, log_sum
from theorems.token_selection.directions.excess_claims import Excess

LEADING_TERM = tolerance(
    "leading-term",
    "−log(1 − r/|D|) + excess-risk, r = Σ_others C|g|e^{−R(a−θ)} + Σ_neighbours c|g|(T−1)e^{−Rθ} + M0/2 Σ_i δ_i²e^{Rθ}",
    "leading_term: what tokens beyond the directional neighbours, the softmax normaliser and the"
    " curvature of the loss add to the first-order term D e^{−Rθ}/n",
)


@dataclass(frozen=True, eq=False)
class Leading:
    """The first-order term of L(R x) − L_α: e^{−Rθ} (1/n) Σ_neighbours |ℓ'(γ_iα_i)| g_it, and its remainder."""

    sign: float
    log_constant: float
    log_remainder: Float64[np.ndarray, "r"]


def leading_term(found: Direction, costs: Costs, radii: Float64[np.ndarray, "r"]) -> Leading:
    """The leading term for the directional neighbours of x, with n(L − L_α)e^{Rθ} = D + r, |r| ≤ e^{log_remainder}.

    Remainder: other tokens contribute at most Σ |ℓ'| |g| e^{−R(a−θ)}; a neighbour's weight is e^{−Rθ}/Z with
    1 ≤ Z ≤ 1 + (T−1)e^{−Rθ}; and ℓ(u−δ) − ℓ(u) differs from |ℓ'(u)| δ by at most M0 δ²/2 where |δ| ≤ Σ_t |g| e^{−Ra}.
    """
    problem = costs.problem
    own = np.take_along_axis(problem.scores, costs.alpha[:, None], axis=1)
    with np.errstate(divide="ignore"):
        log_gaps = np.log(np.abs(costs.gaps))
    log_terms = np.broadcast_to(problem.loss.log_slope(own), log_gaps.shape) + log_gaps
    near = found.neighbours
    top = float(log_terms[near].max())
    total = float(np.sum(np.sign(costs.gaps[near]) * np.exp(log_terms[near] - top)))
    least = found.least
    assert least is not None, "there are neighbours"
    beyond = np.array([[float_of(x - least, found) for x in row] for row in found.exact])
    theta = found.margin
    other = ~near & (costs.gaps != 0)
    spread = log_terms[other] - radii[:, None] * beyond[other]
    rest = np.logaddexp.reduce(spread, axis=1) if spread.shape[1] else np.full(radii.shape, -np.inf)
    normaliser = log_sum(log_terms[near]) + math.log(problem.T - 1) - radii * theta
    each = np.where(costs.gaps == 0, -np.inf, log_gaps) - radii[:, None, None] * beyond
    bends = costs.log_curvature - LOG2 + 2 * np.logaddexp.reduce(each, axis=2) - radii[:, None] * theta
    curvature = np.logaddexp.reduce(bends, axis=1)
    remainder = np.logaddexp(np.logaddexp(rest, normaliser), curvature)
    with np.errstate(divide="ignore"):
        return Leading(float(np.sign(total)), top + math.log(abs(total)) if total else -math.inf, remainder)


def sharp_claim(
    name: str, found: Direction, costs: Costs, radii: Float64[np.ndarray, "r"], under_test: Implementation
) -> Claim | None:
    """log n|L(R x) − L_α| + Rθ − log|D| ≈ 0 where the remainder is below |D|/2; None if it nowhere is."""
    lead = leading_term(found, costs, radii)
    usable = lead.log_remainder < lead.log_constant - LOG2
    if not usable.any():
        return None
    R = radii[usable]
    excess = Excess.at(costs, R[:, None] * found.unit, under_test)
    right_sign = excess.sign == lead.sign
    measured = np.where(right_sign, excess.log_size + math.log(costs.problem.n) + R * found.margin, np.inf)
    bound = -np.log1p(-np.exp(lead.log_remainder[usable] - lead.log_constant))
    predicted_noise = lead.log_constant - math.log(costs.problem.n) - R * found.margin
    relative = np.minimum(excess.log_noise - predicted_noise, 30.0)
    rounding = np.where(relative < -LOG2, -np.log1p(-np.exp(np.minimum(relative, -LOG2))), np.inf)
    rounding = rounding + 16 * EPS * (1 + np.abs(lead.log_constant) + R * found.margin)
    keep = np.isfinite(rounding)
    if not keep.any():
        return None
    return at_least(
        name,
        Form.SHARP,
        0.0,
        np.abs(measured - lead.log_constant)[keep],
        rounding=(bound + rounding)[keep],
        why=LEADING_TERM,
        points="radius",
    )
