"""The coefficients of −∇L as a sum of the rows G of ATT-SVM, and the growth of the singular values of (K; Q).

The rows are G_it = (x_i,opt − x_it) z_iᵀ for t ≠ opt_i, and (K; Q) is the matrix with K above Q. The factor
e^{−log_scale}, one per point, keeps small gradients within the range of float64.

Derivations: :mod:`theorems.transformers_as_svms.factored_flow`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from theorems.bounded import value_of, with_rounding
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints


def certificate_sides(at: AttentionAt) -> tuple[Numbers, Bool[np.ndarray, "b"]]:
    """Compute the sum of the coefficients ω_it of −∇L = Σ ω_it G_it, and whether all are certainly ≥ 0, (b,) each.

    The coefficients are ω_it = (1/n)|ℓ'_i| s_it (f_i − γ_it) for t ≠ opt_i, with f_i the output of input i.
    Their sum is multiplied by e^{−log_scale} (see the module).
    """
    problem = at.problem
    omega: Any = -at.coefficients / problem.n
    below = np.asarray(at.outputs[..., None] >= problem.scores) | (at.token[..., None] == np.arange(problem.T))
    leads = np.all(at.token == problem.optimal, axis=-1) & np.all(below, axis=(-2, -1))
    return np.sum(omega, axis=(-2, -1)), leads


def signed_variances(at: AttentionAt) -> Numbers:
    """Compute |ℓ'_i| Var_i e^{−log_scale}, (b, n), for the variances Var_i = Σ_t s_it (γ_it − f_i)² of scores."""
    problem, tokens = at.problem, np.arange(at.problem.T)
    chosen_scores = np.take_along_axis(problem.scores[None], at.token[..., None], axis=2)
    # A score may be a rounded product Y vᵀx with an error bound; its difference from itself is exactly 0.
    apart = np.where(tokens == at.token[..., None], 0.0, with_rounding(problem.scores) - with_rounding(chosen_scores))
    return np.vecdot(at.coefficients, apart)


def singular_value_growth(
    points: FactoredPoints, descent: Numbers, spectrum: Numbers
) -> tuple[Float64[np.ndarray, "r k"], Float64[np.ndarray, "r k"], Float64[np.ndarray, "r k"]]:
    """Compute the growth of log(σ_1 ⋯ σ_k)(K; Q), the integral ∫ (σ_1 + … + σ_k)(M̂) dτ, and its quadrature error.

    M̂ is −∇L in any unit, and dτ is defined by 4⟨M̂, W⟩ dτ = d‖(K; Q)‖². So the integral equals
    ∫ (σ_1 + … + σ_k)(M̂) ‖(K; Q)‖²/(2⟨M̂, W⟩) d log‖(K; Q)‖, in which the unit of M̂ cancels.

    Args:
        points: (K, Q) along the flow, r of them.
        descent: −∇L in any unit, (r, d, e).
        spectrum: the singular values of ``descent``, (r, min(d, e)).
    """
    K, Q, W = (value_of(x) for x in (points.K, points.Q, points.W))
    stacked = np.concatenate([K, Q], axis=1)
    with np.errstate(divide="ignore"):
        volumes = np.cumsum(np.log(np.linalg.svd(stacked, compute_uv=False)), axis=1)
    count = min(volumes.shape[1], value_of(spectrum).shape[1])
    squared = value_of(points.norm_squared)
    rates = np.cumsum(value_of(spectrum), axis=1)[:, :count]
    along = np.sum(value_of(descent) * W, axis=(1, 2))
    integrand = rates * (squared / (2 * along))[:, None]
    x = np.log(squared) / 2
    fine = trapezoids(x, integrand)
    every = np.unique(np.append(np.arange(0, len(x), 2), len(x) - 1))
    coarse = np.stack([np.interp(x, x[every], column) for column in trapezoids(x[every], integrand[every]).T], axis=1)
    return volumes[1:, :count] - volumes[:1, :count], fine[1:], np.maximum.accumulate(np.abs(fine - coarse))[1:]


def trapezoids(x: Float64[np.ndarray, "r"], y: Float64[np.ndarray, "r k"]) -> Float64[np.ndarray, "r k"]:
    """Compute ∫ y dx from the first point to each point by the trapezoidal rule."""
    pieces = np.diff(x)[:, None] * (y[1:] + y[:-1]) / 2
    return np.concatenate([np.zeros((1, y.shape[1])), np.cumsum(pieces, axis=0)])
