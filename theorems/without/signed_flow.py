"""The gradient ∇L and its flow for losses that may increase, for which :mod:`reference_attention.risk` is not valid.

References: :mod:`reference_attention.ill_behaved_losses`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.ill_behaved_losses import IllBehavedLoss
from reference_attention.loss import Loss
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, scaled_gradient, softmax_weights
from reference_attention.training.flow import gradient_flow
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import Implementation
from theorems.without.flow_claims import NORM, norm_claim, start_of
from theorems.without.slopes import gradient


def signed_gradient(
    keys: Float64[np.ndarray, "n T d"],
    scores: Float64[np.ndarray, "n T"],
    loss: Loss,
    p: Float64[np.ndarray, "*b d"],
) -> ScaledGradient:
    """Return ∇L = (1/n) Σ_i ℓ'(u_i) ∇u_i, u_i the output of input i, as the logarithm of a scale and a vector.

    ∇u_i is minus the gradient for the correlation loss ℓ(u) = −u.
    """
    if not isinstance(loss, IllBehavedLoss):
        return scaled_gradient(keys, scores, loss, p)
    n = len(keys)
    outputs = np.sum(softmax_weights(keys, p) * scores, axis=-1)
    slopes = np.asarray(loss.derivative(outputs))
    parts = [scaled_gradient(keys[i : i + 1], scores[i : i + 1], LOSSES["correlation"], p) for i in range(n)]
    logs = np.array([part.log_scale for part in parts])
    top = np.max(logs, axis=0)
    shift = np.where(np.isfinite(top), top, 0.0)
    direction = np.sum(
        [
            -(slopes[..., i] * np.exp(logs[i] - shift))[..., None] * np.asarray(part.direction)
            for i, part in enumerate(parts)
        ],
        axis=0,
    )
    return ScaledGradient(np.asarray(top), direction / n)


NEAR = 0.25
"""To see whether the flow leads back to a stationary point, points at this distance from it are checked, in units of
about 1/(largest |entry| of the keys)."""
ANGLES = 16
"""Number of points around a stationary point at which the flow is checked if d = 2."""


def flow_diverges(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim that ‖p(t)‖ → ∞ along the gradient flow p(t) from the case's start."""
    yield norm_of_flow(case.problem, start_of(case))


def norm_of_flow(problem: Problem, start: Float64[np.ndarray, "d"]) -> Claim:
    """Claim ‖p(t)‖ → ∞ along the gradient flow, for any loss; a finite point that the flow cannot leave refutes it.

    A point at which the gradient vanishes only by rounding, because a softmax saturates, leaves the claim undecided.
    """
    unit = 1 / problem.key_scale
    norm = NORM * max(unit, float(np.linalg.norm(start)))
    by = signed_gradient if isinstance(problem.loss, IllBehavedLoss) else scaled_gradient
    flow = gradient_flow(problem, start, norm=norm, gradient=by)
    claim = norm_claim(flow, unit)
    if claim.verdict is Verdict.FALSIFIED and not traps(problem, flow.final):
        return replace(claim, undecided=f"{claim.detail}, where the gradient is smaller than its rounding error")
    return claim


def traps(problem: Problem, p: Float64[np.ndarray, "d"]) -> bool:
    """Check that the flow leads back to p: ⟨∇L(x), x − p⟩ > 0, by more than rounding, at certain points x around p.

    The points x lie on both sides of p for d = 1, on a circle around p for d = 2, and along the axes through p for d >
    2.
    """
    if problem.d == 1:
        around = np.array([[1.0], [-1.0]])
    elif problem.d == 2:
        angles = 2 * np.pi * np.arange(ANGLES) / ANGLES
        around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        around = np.concatenate([np.eye(problem.d), -np.eye(problem.d)])
    _, slopes = gradient(problem, p + NEAR / problem.key_scale * around)
    return bool((np.vecdot(slopes, around) > 0).all())
