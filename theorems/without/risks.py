"""Risks at large norm R along a ray, compared in logarithms: claims "for all R > R0" are checked at R up to 10⁶.

Notation: L_α is the risk if every input selects its token α_i, L_opt if every input selects its best token.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 8 and 9.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from reference_attention.directions import direction
from reference_attention.floats import EPS, log_expm1
from reference_attention.ill_behaved_losses import IllBehavedLoss
from reference_attention.problem import Problem
from theorems.bounded import exact
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt
from theorems.token_selection.directions.directional_risk import Costs
from theorems.without.noisy_excess import EXCESS_RISK, Excess
from theorems.without.slopes import RADII, Pair, lasting

Risk = Callable[[Float64[np.ndarray, "m d"]], Excess]
"""Function that maps points p, (m, d), to L(p) − L_α, given by sign and logarithm, where L_α is the risk if the tokens
α are selected."""


def linear_risk(problem: Problem, under_test: Implementation) -> Risk:
    """Return the function p ↦ L(p) − L_opt (symbols: see the module), in signs and logarithms, with rounding errors."""
    loss = problem.loss
    if isinstance(loss, IllBehavedLoss) and loss.decreasing:
        return lambda points: decreasing_risk(problem, points)
    costs = Costs.of(problem, problem.optimal)
    return lambda points: Excess.at(costs, points, under_test)


def decreasing_risk(problem: Problem, points: Float64[np.ndarray, "m d"]) -> Excess:
    """Return L(p) − L_opt ≥ 0 for a loss that decreases and whose derivative ℓ' may vanish.

    L_opt is the risk if every input selects its best token. To bound |ℓ'| by its largest value would give too large an
    error where ℓ' vanishes. Here the excess risk of input i is computed from δ_i = Σ_t s_it (γ_i,opt − γ_it), with the
    softmax weights s_it. No terms cancel: all terms of δ_i are ≥ 0, and so are the excess risks of the inputs.
    """
    best, n = problem.scores.max(axis=1), problem.n
    log_gaps = np.log(exact(best)[:, None] - problem.scores)
    log_delta = np.logaddexp.reduce(AttentionAt(problem, points).log_weights + log_gaps, axis=-1)
    sign = np.isfinite(log_delta.value) * 1.0
    _, each = problem.loss.log_excess(np.broadcast_to(best, sign.shape), sign, log_delta)
    total = np.logaddexp.reduce(each, axis=-1) - np.log(exact(n))
    with np.errstate(divide="ignore"):
        return Excess(np.isfinite(total.value) * 1.0, total.value, total.value + log_expm1(total.error))


def along(problem: Problem, q: Float64[np.ndarray, "d"], costs: Costs, under_test: Implementation) -> Excess:
    """Return L(R q/‖q‖) − L_α, with rounding errors, at the radii R of :data:`RADII`; α are the tokens of ``costs``."""
    return Excess.at(costs, RADII[:, None] * (q / np.linalg.norm(q)), under_test)


def costs_of(problem: Problem, q: Float64[np.ndarray, "d"], under_test: Implementation) -> Costs:
    """Return each token's cost (score gap times slope of the loss) relative to the token that q selects."""
    return Costs.of(problem, under_test[direction](problem.keys, q).best(problem.scores))


def lower_far_out(
    name: str,
    problem: Problem,
    winner: Float64[np.ndarray, "d"],
    loser: Float64[np.ndarray, "d"],
    under_test: Implementation,
) -> Claim:
    """Claim L(R winner) < L(R loser) at large R; the claim is violated if the order is reversed at every radius."""
    costs = costs_of(problem, loser, under_test)
    return everywhere(name, along(problem, loser, costs, under_test), along(problem, winner, costs, under_test))


def below_selection(name: str, problem: Problem, q: Float64[np.ndarray, "d"], under_test: Implementation) -> Claim:
    """Claim L(R q) < L_α at large R, in units of |L(R q) − L_α|, where q selects α.

    L_α is the risk if the tokens α have all weight. The claim is violated if L(R q) > L_α at every radius R of
    :data:`RADII`.
    """
    excess = along(problem, q, costs_of(problem, q, under_test), under_test)
    nothing = Excess(np.zeros_like(excess.sign), np.full_like(excess.log_size, -np.inf), excess.log_noise)
    slack, error = difference(nothing, excess)
    detail = f"L(R q) − L_α = {_text(excess, -1)} at R = {RADII[-1]:g}"
    return lasting(name, Form.LIMIT, (slack, error), EXCESS_RISK, detail)


def everywhere(name: str, larger: Excess, smaller: Excess) -> Claim:
    """Claim ``larger`` > ``smaller``, in units of the larger absolute value; violated if it fails at every radius."""
    slack, error = difference(larger, smaller)
    k = int(np.argmax(slack + error))
    detail = f"{_text(larger, k)} > {_text(smaller, k)} fails at R = {RADII[k]:g}, and as clearly at other radii"
    return lasting(name, Form.LIMIT, (slack, error), EXCESS_RISK, detail)


def difference(larger: Excess, smaller: Excess) -> Pair:
    """Return larger − smaller and its error bound, in units of the larger absolute value (of 1 where both vanish)."""
    top = np.maximum(larger.log_size, smaller.log_size)
    unit = np.where(np.isfinite(top), top, 0.0)
    value = larger.sign * np.exp(larger.log_size - unit) - smaller.sign * np.exp(smaller.log_size - unit)
    noise = np.logaddexp(larger.log_noise, smaller.log_noise) - unit
    # Add the rounding errors of computing with logarithms.
    return value, np.exp(np.minimum(noise, 700.0)) + 8 * EPS * (1 + np.abs(unit))


def _text(excess: Excess, k: int) -> str:
    return f"{'-' if excess.sign[k] < 0 else ''}e^{{{excess.log_size[k]:.9g}}}" if excess.sign[k] else "0"
