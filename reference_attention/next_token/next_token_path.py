"""The regularization path of next-token prediction: argmin of L over balls, by the multiplier of ‖θ‖²/2.

argmin L(θ) + (μ/2)‖θ‖² minimises L over the ball of its own radius B; B → ∞ as μ → 0. Newton's method, damped, in units
in which the Hessian's diagonal is 1: that of F is of size 1, that of F^⊥ of size μ.

Reference: arXiv 2402.18551, (8) and Theorem 1.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.next_token.finite_minimum import FiniteMinimum
from reference_attention.next_token.next_token_descent import SplitRun
from reference_attention.next_token.next_token_svm import NextTokenSvm
from reference_attention.next_token.split_loss import SplitLoss

STEPS = 200
SETTLED = 1e-13
"""The size of a step, relative to that of θ, after which there is none: one more squares it."""


def next_token_path(minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Float64[np.ndarray, "b"]) -> SplitRun:
    """The path's points for multipliers μ > 0, one after another, (b, 1, ·).

    Args:
        minimum, svm: θ_⋆ and θ_mm, whose ray is where the search starts.
        multipliers: μ.
    """
    split, loss = minimum.split, SplitLoss(minimum)
    r = split.dimension
    origin = split.coordinates_of(minimum.floats)[:r]
    along = split.coordinates_of(svm.floats)[r:]
    x, y = np.zeros(r), along * max(0.0, -float(np.log(multipliers[0])))
    points = []
    for mu in multipliers.tolist():
        x, y = _minimise(loss, origin, mu, x, y)
        points.append((x, y))
    return SplitRun(np.array([[p[0]] for p in points]), np.array([[p[1]] for p in points]))


def _minimise(
    loss: SplitLoss,
    origin: Float64[np.ndarray, "r"],
    mu: float,
    x: Float64[np.ndarray, "r"],
    y: Float64[np.ndarray, "s"],
) -> tuple[Float64[np.ndarray, "r"], Float64[np.ndarray, "s"]]:
    split = loss.minimum.split
    rows = np.concatenate([loss.inside, -split.outside], axis=2)
    # A step that moves no logit by more than one decreases a function of this curvature.
    for _ in range(STEPS):
        change, _ = loss.changes(x, y)
        shares = np.where(split.sets, loss.inner, 0.0) + change
        ahead, beside = loss.gradient(x, y)
        gradient = np.concatenate([ahead + mu * (origin + x), beside + mu * y])
        mean = np.einsum("jv,jvd->jd", shares, rows)
        # Less the mean, with the part of F^⊥ made of what is off Ŝ alone, nothing cancels.
        centred = rows - mean[:, None]
        hessian = np.einsum("j,jv,jvd,jve->de", loss.weights, shares, centred, centred) + mu * np.eye(rows.shape[2])
        unit = 1 / np.sqrt(np.diag(hessian))
        step = unit * np.linalg.solve(hessian * unit[:, None] * unit, gradient * unit)
        turned = float(np.abs(np.einsum("jvd,d->jv", rows, step)[split.problem.alternatives]).max(initial=0.0))
        scale = 1 / max(1.0, turned)
        x, y = x - scale * step[: len(x)], y - scale * step[len(x) :]
        if scale == 1 and np.linalg.norm(step) <= SETTLED * (1 + np.linalg.norm(y)):
            break
    return x, y
