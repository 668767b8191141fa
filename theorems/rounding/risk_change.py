"""L(p + h) − L(p) without cancellation, with a bound on its rounding error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from reference_attention.floats import EPS
from theorems.core.tolerances import tolerance
from theorems.rounding.evaluation import Evaluation
from theorems.rounding.forward_error import UNDERFLOW, dot, logit_error

RISK_CHANGE = tolerance(
    "risk-change",
    "Σ_t |ℓ'| s_t (|δγ_t| + Σ s|δγ|) (|expm1 Δ_t| r_t + e^{Δ_t} err(Δ_t)) / n + terms of the gradient",
    "risk_change: L(p + h) − L(p) is a sum over unselected tokens of s_t (γ_t − f) expm1(Δ_t), each factor"
    " with its own relative error; nothing cancels but these terms",
)

LARGEST_LOGIT_CHANGE = 300.0
"""Steps that move a logit difference by more than this are refused: products of two of their exponentials would
overflow.
"""


@dataclass(frozen=True, eq=False)
class RiskChange:
    """L(p + h) − L(p) = e^{log_scale} · (value ± error), log_scale that of the gradient at p; shapes
    (b,). ``too_long`` marks steps that are refused; value and error are NaN there."""

    log_scale: Float64[np.ndarray, "b"]
    value: Float64[np.ndarray, "b"]
    error: Float64[np.ndarray, "b"]
    too_long: Bool[np.ndarray, "b"]


def risk_change(at: Evaluation, steps: Float64[np.ndarray, "b d"]) -> RiskChange:
    """The change of the risk from the points of ``at`` by ``steps``; NaN where a step is too long.

    With r the selected token at p and Δ_t = (k_t − k_r)·h, the weights at p + h are s_t e^{Δ_t}/Z, hence
    f(p + h) − f(p) = Σ_{t≠r} s_t (γ_t − f) expm1(Δ_t) / Z. The loss turns it into ℓ(f + ·) − ℓ(f).

    Error: relative error r_t of s_t and Z, absolute error of Δ_t times e^{Δ_t}, and |γ_t − f| taken as
    |δγ_t| + Σ s_u |δγ_u|; the slope of the loss between the two outputs exceeds |ℓ'(f)| by at most e^{|δf|}.
    """
    problem, gradient = at.problem, at.gradient
    change = dot(at.key_differences, steps)
    too_long = np.any(np.abs(change) > LARGEST_LOGIT_CHANGE, axis=(1, 2))
    change = np.clip(change, -LARGEST_LOGIT_CHANGE, LARGEST_LOGIT_CHANGE)
    change_error = logit_error(at.key_differences, steps)
    shift = np.where(np.isfinite(gradient.log_scale), gradient.log_scale, 0.0)[:, None]
    log_factor = at.log_factors - shift[..., None]
    sign, log_spread = at.spreads
    s, grown = at.weights, np.expm1(change)
    total = 1 + np.sum(s * grown, axis=-1)
    moved = np.sum(sign * np.exp(log_factor + log_spread) * grown, axis=-1) / total

    relative = at.product_error(shift[..., None])
    own, mean = (np.exp(log_factor + log_size) for log_size in at.log_sizes)
    worst = np.max(relative, axis=-1, keepdims=True)
    one = (own + mean) * (np.abs(grown) * (relative + 2 * worst) + (1 + grown) * change_error)
    total_error = np.sum(s * np.abs(grown) * relative + s * (1 + grown) * change_error, axis=-1) / total
    moved_error = np.sum(one, axis=-1) / total + np.abs(moved) * (total_error + 4 * EPS) + UNDERFLOW

    # moved = |ℓ'| (f(p + h) − f(p)) / (n e^shift); the excess of the loss is for δ = f(p) − f(p + h).
    with np.errstate(divide="ignore"):
        log_size = np.log(np.abs(moved)) - (at.log_slopes - math.log(problem.n) - shift)
    direction, log_excess = problem.loss.log_excess(at.outputs, -np.sign(moved), log_size)
    finite = np.where(np.isneginf(log_excess), 0.0, log_excess)
    terms = np.where(np.isneginf(log_excess), 0.0, direction * np.exp(finite - math.log(problem.n) - shift))
    distance = np.exp(np.minimum(log_size, 700.0))
    growth = np.exp(np.minimum(distance, 700.0)) * moved_error
    inherited = np.abs(terms) * (at.outputs_error + EPS * (12 + 2 * np.abs(finite) + 2 * np.abs(shift)))
    error = np.sum(growth + inherited, axis=-1) + problem.n * EPS * np.sum(np.abs(terms), axis=-1)
    return RiskChange(
        gradient.log_scale,
        np.where(too_long, np.nan, np.sum(terms, axis=-1)),
        np.where(too_long, np.nan, error),
        too_long,
    )
