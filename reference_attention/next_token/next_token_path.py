"""The regularization path of next-token prediction: minimisers of L over balls, one for each given multiplier μ.

The minimiser θ of L(θ) + (μ/2)‖θ‖² also minimises L over the ball of radius ‖θ‖, which tends to ∞ as μ → 0. Newton's
method works in units in which the diagonal of the Hessian is 1, because in the units of θ the Hessian is of size 1 on
the subspace F of :mod:`.subspace_split` and of size μ on F^⊥. Steps are damped as in :mod:`.finite_minimum`.

Reference: arXiv 2402.18551, (8) and Theorem 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.next_token.finite_minimum import FiniteMinimum, damping
from reference_attention.next_token.next_token_descent import SplitRun
from reference_attention.next_token.next_token_svm import NextTokenSvm
from reference_attention.next_token.split_loss import SplitLoss

STEPS = 60
SETTLED = 1e-12
"""Largest change of a logit difference in the last Newton step; a further step would change it by about the square of
this number."""
RESIDUAL = 8e-7
"""Largest accepted residual of a point: the larger of ‖∇L + μθ‖ divided by μ‖θ‖, and 2‖θ‖‖∇L + μθ‖ divided by L − inf
L."""


def next_token_path(minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Float64[np.ndarray, "b"]) -> SplitRun:
    """Return the points of the path for b multipliers μ > 0, shape (b, 1, ·), and the reasons of failed searches.

    Args:
        minimum: the problem, and θ_⋆, the limit of θ's part in F.
        svm: the max-margin direction θ_mm, along which the search moves from each point to guess the next.
        multipliers: the multipliers μ, decreasing.
    """
    split, loss = minimum.split, SplitLoss(minimum)
    r = split.dimension
    origin = split.coordinates_of_exact(minimum.point)[:r]
    along = split.coordinates_of_exact(svm.point)[r:]
    logs = np.log(multipliers)
    x, y = np.zeros(r), along * max(0.0, -float(logs[0]))
    points, failures = [], {}
    for k, mu in enumerate(multipliers.tolist()):
        x, y, residual = _minimise(loss, origin, mu, x, y)
        points.append((x, y))
        if not residual <= RESIDUAL:
            failures[k] = f"at μ = {mu:.3g} Newton's method ended with a residual of {residual:.3g}"
        if k + 1 < len(logs):
            y = y + along * (logs[k] - logs[k + 1])
    return SplitRun(np.array([[p[0]] for p in points]), np.array([[p[1]] for p in points]), failures)


def _minimise(
    loss: SplitLoss,
    origin: Float64[np.ndarray, "r"],
    mu: float,
    x: Float64[np.ndarray, "r"],
    y: Float64[np.ndarray, "s"],
) -> tuple[Float64[np.ndarray, "r"], Float64[np.ndarray, "s"], float]:
    """Return the coordinates x in F and y in F^⊥ of the minimiser for μ, and its residual (:data:`RESIDUAL`)."""
    split = loss.minimum.split
    rows = np.concatenate([loss.inside, -split.outside], axis=2)
    alternatives = split.problem.alternatives
    for _ in range(STEPS):
        change, _ = loss.changes(x, y)
        shares = np.where(split.sets, loss.inner, 0.0) + change
        gradient = _gradient(loss, origin, mu, x, y)
        mean = np.einsum("jv,jvd->jd", shares, rows)
        # Subtract the mean from the rows. On F^⊥ only alternatives outside the extended supports contribute to the
        # mean, so nothing cancels.
        centred = rows - mean[:, None]
        hessian = np.einsum("j,jv,jvd,jve->de", loss.weights, shares, centred, centred) + mu * np.eye(rows.shape[2])
        unit = 1 / np.sqrt(np.diag(hessian))
        if not (np.isfinite(hessian).all() and np.isfinite(unit).all() and np.isfinite(gradient).all()):
            break
        step = unit * np.linalg.lstsq(hessian * unit[:, None] * unit, gradient * unit, rcond=None)[0]
        logits = rows @ step
        ranges = np.where(alternatives, logits, -np.inf).max(axis=1) - np.where(alternatives, logits, np.inf).min(
            axis=1
        )
        largest_change = float(ranges.max())

        def slope(s: float, x: Any = x, y: Any = y, step: Any = step) -> float:
            return -float(_gradient(loss, origin, mu, x - s * step[: len(x)], y - s * step[len(x) :]) @ step)

        scale = damping(largest_change, slope)
        x, y = x - scale * step[: len(x)], y - scale * step[len(x) :]
        if not largest_change > SETTLED:
            break
    theta = np.concatenate([origin + x, y])
    size, gradient_norm = float(np.linalg.norm(theta)), float(np.linalg.norm(_gradient(loss, origin, mu, x, y)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return (
            x,
            y,
            float(np.maximum(gradient_norm / np.float64(mu * size), 2 * size * gradient_norm / loss.excess(x, y))),
        )


def _gradient(
    loss: SplitLoss,
    origin: Float64[np.ndarray, "r"],
    mu: float,
    x: Float64[np.ndarray, "r"],
    y: Float64[np.ndarray, "s"],
) -> Float64[np.ndarray, "D"]:
    """Return ∇L + μθ at the point with coordinates x and y, in coordinates of F and F^⊥."""
    gradient_in_f, gradient_across = loss.gradient(x, y)
    return np.concatenate([gradient_in_f + mu * (origin + x), gradient_across + mu * y])
