"""The gradient ∇L with rounding errors, also for losses that increase, and the descent of L along a direction.

The evaluation that statements use (:mod:`theorems.rounding.attention_at`) relies on ℓ' < 0; here the loss's derivative
ℓ' may have any sign.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 4–7.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.ill_behaved_losses import IllBehavedLoss
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from theorems.bounded import Bounded, exact
from theorems.core.claim import Claim, Form
from theorems.rounding.attention_at import AttentionAt, Numbers

RADII = np.array([1e2, 1e3, 1e4, 1e5, 1e6])
"""Norms R of the points on a ray at which claims are checked, in units of about 1/(largest |entry| of the keys)."""
Pair = tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b"]]
"""Pair of numbers, (b,), and the bounds of their errors, (b,)."""


def gradient(problem: Problem, points: Float64[np.ndarray, "b d"]) -> tuple[Float64[np.ndarray, "b"], Bounded]:
    """Return, at each point, the logarithm c of a scale, (b,), and ∇L e^{−c}, the gradient over the scale, (b, d).

    For an ill-behaved loss ∇L = (1/n) Σ_i ℓ'(u_i) ∇u_i, with u_i the output of input i; ∇u_i is minus the gradient for
    the correlation loss −u.
    """
    loss = problem.loss
    if not isinstance(loss, IllBehavedLoss):
        at = AttentionAt(problem, points)
        return at.log_scale, at.gradient
    rows = range(problem.n)
    linear = [Problem(problem.keys[i : i + 1], problem.scores[i : i + 1], LOSSES["correlation"]) for i in rows]
    each = [AttentionAt(linear_problem, points) for linear_problem in linear]
    # Ignore the scale of an input whose gradient is zero.
    scales = [np.where(np.all(at.gradient == 0, axis=-1), -np.inf, at.log_scale) for at in each]
    scale = np.max(scales, axis=0)
    scale = np.where(np.isfinite(scale), scale, 0.0)
    units = [np.exp(exact(log) - scale)[:, None] for log in scales]
    terms = [-loss.derivative(at.outputs) * unit * at.gradient for at, unit in zip(each, units, strict=True)]
    return scale, np.mean(np.stack(terms), axis=0)


def descent(problem: Problem, points: Float64[np.ndarray, "b d"], q: Numbers) -> Bounded:
    """Return −⟨∇L(p), q⟩/‖∇L(p)‖, (b,), or 0 where ∇L = 0; the norm is only a unit, so its rounding is left out."""
    _, slopes = gradient(problem, points)
    norm = np.linalg.norm(slopes.value, axis=-1)
    return -np.vecdot(slopes, q) / np.where(norm > 0, norm, 1.0)


def lasting(name: str, form: Form, slack: Bounded | Pair, why: str, detail: str) -> Claim:
    """Claim that an inequality holds for all p of large enough norm, or for some p, given its slack at several p.

    The claim's slack is that of the point with the largest slack + error, so that the claim is violated only if the
    inequality fails at all points.
    """
    value, error = (slack.value, slack.error) if isinstance(slack, Bounded) else slack
    best = int(np.argmax(np.where(np.isnan(value + error), np.inf, value + error)))
    return Claim(name, form, float(value[best]), float(error[best]), why, detail)
