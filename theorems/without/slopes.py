"""∇L with its rounding for any loss, also one that increases, and what it says about descent along a direction.

The statements' own evaluation (:mod:`theorems.rounding.evaluation`) takes ℓ' < 0 for granted; here ℓ' has its sign.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 4–7.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.ill_behaved_losses import IllBehavedLoss
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from theorems.core.claim import Claim, Form
from theorems.rounding.evaluation import BoundedGradient, Evaluation
from theorems.rounding.forward_error import dot_error

Pair = tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b"]]
"""Numbers and their errors."""


def gradient(problem: Problem, points: Float64[np.ndarray, "b d"]) -> BoundedGradient:
    """∇L = e^{log_scale} (direction ± error).

    For an ill-behaved loss ∇L = (1/n) Σ_i ℓ'(u_i) Cov_i(γ, k), the covariance being the gradient of −u_i = −γ_iᵀs_i; ℓ'
    may be off by as much as it varies over the rounding of u_i, and its formula by 4 eps.
    """
    loss = problem.loss
    if not isinstance(loss, IllBehavedLoss):
        return Evaluation(problem, points).gradient
    parts = [_one_input(problem, i, loss, points) for i in range(problem.n)]
    scale = np.max([part.log_scale for part in parts], axis=0)
    shift = np.where(np.isfinite(scale), scale, 0.0)
    factors = [np.exp(part.log_scale - shift)[:, None] / problem.n for part in parts]
    direction = np.sum([f * part.direction for f, part in zip(factors, parts, strict=True)], axis=0)
    size = np.sum([f * np.abs(part.direction) for f, part in zip(factors, parts, strict=True)], axis=0)
    error = np.sum([f * part.error for f, part in zip(factors, parts, strict=True)], axis=0)
    logs = np.max([np.where(np.isfinite(part.log_scale), np.abs(part.log_scale), 0.0) for part in parts], axis=0)
    return BoundedGradient(scale, direction, error + EPS * (problem.n + 6 + 2 * logs)[:, None] * size)


def _one_input(problem: Problem, i: int, loss: IllBehavedLoss, points: Float64[np.ndarray, "b d"]) -> BoundedGradient:
    """ℓ'(u_i) Cov_i(γ, k)."""
    at = Evaluation(Problem(problem.keys[i : i + 1], problem.scores[i : i + 1], LOSSES["correlation"]), points)
    u, off = at.outputs[:, 0], at.outputs_error[:, 0]
    slope = np.asarray(loss.derivative(u))
    low, high = loss.slopes(u - off, u + off)
    varies = np.maximum(np.abs(slope - low), np.abs(high - slope)) + 4 * EPS * np.abs(slope)
    rising, size = at.gradient, np.abs(at.gradient.direction)
    return BoundedGradient(
        rising.log_scale,
        -slope[:, None] * rising.direction,
        np.abs(slope)[:, None] * rising.error + varies[:, None] * (size + rising.error),
    )


def descent(problem: Problem, points: Float64[np.ndarray, "b d"], q: Float64[np.ndarray, "*#b d"]) -> Pair:
    """−⟨∇L(p), q⟩/‖∇L(p)‖ and its error, (b,); 0 where ∇L = 0."""
    found = gradient(problem, points)
    value, error = -np.sum(found.direction * q, axis=-1), dot_error(found.direction, q, found.error)
    norm = np.sqrt(np.sum(found.direction**2, axis=-1))
    norm = np.where(norm > 0, norm, 1.0)
    return value / norm, error / norm


def lasting(name: str, form: Form, slack: Pair, why: str, detail: str) -> Claim:
    """A claim about "all p far enough out" (or some p of many): of several points the one that speaks *for* it most.

    Only if the claim is violated at every one of the points does it count as violated.
    """
    value, error = slack
    best = int(np.argmax(np.where(np.isnan(value + error), np.inf, value + error)))
    return Claim(name, form, float(value[best]), float(error[best]), why, detail)
