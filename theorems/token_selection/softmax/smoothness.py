"""Lipschitz constants of ∇L: a sharper global constant than Lemma 6's, and a local one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.bounded import Bounded, exact
from theorems.rounding.attention_at import AttentionAt, Numbers


def log_sharp_smoothness(problem: Problem) -> Bounded:
    """Return log L̂, L̂ = (1/n) Σ_i (M0 R_i² D_i²/16 + 3 M1 R_i D_i²/16) ≤ L_p; −inf where ∇L = 0 throughout.

    M0 is the Lipschitz constant of ℓ', M1 the largest |ℓ'|, R_i the range of the scores and D_i the diameter of the
    keys of input i. With the output f = γᵀs, the mean key k̄ and moments under the softmax weights s, ∇²L = (1/n) Σ (ℓ''
    ∇f∇fᵀ + ℓ' ∇²f), ∇f = Cov(γ, k) and ∇²f = E[(γ − f)(k − k̄)(k − k̄)ᵀ]. A variable with range R has standard deviation
    at most R/2 (Popoviciu), so ‖∇f‖ ≤ (R/2)(D/2). For a unit x let y = ((k − k̄)·x)² ∈ [0, D²], whose mean ȳ is at most
    D²/4; its mean absolute deviation is at most 2ȳ(D² − ȳ)/D² ≤ 3D²/8, and xᵀ∇²f x = E[(γ − c)(y − ȳ)] ≤ (R/2)(3D²/8)
    with c the middle of the range of scores. As R ≤ √2‖γ‖ and D ≤ √2‖K‖, L̂ ≤ (1/n) Σ (M0‖γ‖²‖K‖² + 3 M1‖γ‖‖K‖²)/4.
    """
    scores = exact(problem.scores)
    log_width = np.log(np.max(scores, axis=1) - np.min(scores, axis=1))
    log_diameter = np.log(diameters(problem.keys))
    low, high = problem.score_range
    curved = log_constant(problem.loss.log_lipschitz(low, high)) + 2 * (log_width + log_diameter)
    steep = log_constant(problem.loss.log_bound(low, high)) + np.log(exact(3)) + log_width + 2 * log_diameter
    return np.logaddexp.reduce(np.concatenate([curved, steep])) - np.log(exact(16 * problem.n))


def diameters(keys: Float64[np.ndarray, "n T d"]) -> Any:
    """Return the largest distance max_{t,u} ‖k_it − k_iu‖ of two keys of each input, (n,).

    Distances are computed one token at a time, because an array (n, T, T, d) would be too large. A computed distance
    has the relative error (d/2 + 3) eps, from the rounding of differences, squares, sum and root.
    """
    largest = np.max(np.abs(keys), axis=(1, 2))
    unit = np.where(largest > 0, np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0)))), 1.0)
    scaled, widest = keys / unit[:, None, None], np.zeros(len(keys))
    for t in range(1, keys.shape[1]):
        widest = np.maximum(widest, np.max(norm(scaled[:, :t] - scaled[:, t : t + 1], axis=-1), axis=-1))
    return exact(widest).widen((keys.shape[2] / 2 + 4) * EPS * widest) * unit


def log_constant(log: float) -> Bounded:
    """Return the logarithm of a constant of the loss as a bounded array, with the error of a few roundings."""
    return exact(log).widen(8 * EPS * (1 + abs(log))) if math.isfinite(log) else exact(log)


def local_smoothness(at: AttentionAt) -> Numbers:
    """Return an upper bound on ‖∇²L(p)‖ at each point: (1/n) Σ (M0 ‖Cov(γ, k)‖² + |ℓ'| E[|γ − f| ‖k − k̄‖²]).

    M0 is the Lipschitz constant of ℓ', f the output and k̄ the mean key; moments are those under the softmax weights.
    """
    problem, s = at.problem, at.weights
    centred = at.key_differences - np.sum(s[..., None] * at.key_differences, axis=-2, keepdims=True)
    spread = problem.scores - at.outputs[..., None]
    slopes = np.sum((s * spread)[..., None] * centred, axis=-2)
    curved = math.exp(problem.loss.log_lipschitz(*problem.score_range)) * np.sum(slopes * slopes, axis=-1)
    second = np.sum(s * np.abs(spread) * np.sum(centred * centred, axis=-1), axis=-1)
    return np.mean(curved + np.exp(at.log_slopes) * second, axis=-1)
