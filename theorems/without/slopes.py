"""∇L with its rounding for any loss, also one that increases, and what it says about descent along a direction.

The statements' own evaluation (:mod:`theorems.rounding.attention_at`) takes ℓ' < 0 for granted; here ℓ' has its sign.

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

Pair = tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b"]]
"""Numbers and their errors."""


def gradient(problem: Problem, points: Float64[np.ndarray, "b d"]) -> tuple[Float64[np.ndarray, "b"], Bounded]:
    """∇L by a log scale, (b,), and what is left of it, (b, d).

    For an ill-behaved loss ∇L = (1/n) Σ_i ℓ'(u_i) ∇u_i, ∇u_i being minus the gradient of the correlation loss.
    """
    loss = problem.loss
    if not isinstance(loss, IllBehavedLoss):
        at = AttentionAt(problem, points)
        return at.log_scale, at.gradient
    rows = range(problem.n)
    linear = [Problem(problem.keys[i : i + 1], problem.scores[i : i + 1], LOSSES["correlation"]) for i in rows]
    each = [AttentionAt(one, points) for one in linear]
    # The scale of an input whose own gradient is nothing says nothing.
    scales = [np.where(np.all(at.gradient == 0, axis=-1), -np.inf, at.log_scale) for at in each]
    scale = np.max(scales, axis=0)
    scale = np.where(np.isfinite(scale), scale, 0.0)
    units = [np.exp(exact(log) - scale)[:, None] for log in scales]
    terms = [-loss.derivative(at.outputs) * unit * at.gradient for at, unit in zip(each, units, strict=True)]
    return scale, np.mean(np.stack(terms), axis=0)


def descent(problem: Problem, points: Float64[np.ndarray, "b d"], q: Numbers) -> Bounded:
    """−⟨∇L(p), q⟩/‖∇L(p)‖, (b,); 0 where ∇L = 0. The norm is taken as a unit, without its rounding."""
    _, found = gradient(problem, points)
    norm = np.linalg.norm(found.value, axis=-1)
    return -np.vecdot(found, q) / np.where(norm > 0, norm, 1.0)


def lasting(name: str, form: Form, slack: Bounded | Pair, why: str, detail: str) -> Claim:
    """A claim about "all p far enough out" (or some p of many): of several points the one that speaks *for* it most.

    Only if the claim is violated at every one of the points does it count as violated.
    """
    value, error = (slack.value, slack.error) if isinstance(slack, Bounded) else slack
    best = int(np.argmax(np.where(np.isnan(value + error), np.inf, value + error)))
    return Claim(name, form, float(value[best]), float(error[best]), why, detail)
