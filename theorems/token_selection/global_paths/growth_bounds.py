"""Explicit bounds on gradient descent under Assumption B: how fast it climbs along p_mm, how long it can stay askew.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2, Lemmas 4 to 6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.bounded import exact
from theorems.rounding.evaluation import Evaluation
from theorems.rounding.forward_error import relative_error


def log_gaps(problem: Problem) -> Float64[np.ndarray, "n"]:
    """log gap_i, gap_i = γ_i,opt − the common score of the other tokens (Assumption B)."""
    return np.asarray(np.log(problem.scores.max(axis=1) - problem.scores.min(axis=1)))


def reach(problem: Problem) -> float:
    """D = max ‖k_i,opt − k_it‖."""
    best = np.take_along_axis(problem.keys, problem.optimal[:, None, None], axis=1)
    return float(np.linalg.norm(best - problem.keys, axis=2).max())


def bounded_log_climb(at: AttentionAt) -> Any:
    """Lemma 4's terms: log of (1/n)|ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt), (b, n)."""
    problem, slopes = at.problem, at.log_slopes
    gaps = exact(problem.scores.max(axis=1)) - problem.scores.min(axis=1)
    return slopes + np.log(gaps / problem.n) + at.log_weight_of(problem.optimal) + at.log_complement(problem.optimal)


def log_climb(
    evaluation: Evaluation, problem: Problem
) -> tuple[Float64[np.ndarray, "b n"], Float64[np.ndarray, "b n"]]:
    """Lemma 4's terms: log of (1/n)|ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt), and the error of that logarithm."""
    alpha = problem.optimal
    logs = (
        evaluation.log_slopes,
        log_gaps(problem)[None] - math.log(problem.n),
        evaluation.log_weight_of(alpha),
        evaluation.log_complement(alpha),
    )
    error = evaluation.log_slopes_error + 2 * evaluation.log_weights_error.max(axis=-1)
    size = np.sum([np.abs(x) for x in np.broadcast_arrays(*logs)], axis=0)
    return np.sum(np.broadcast_arrays(*logs), axis=0), error + (problem.T + 8) * EPS * (1 + size)


def log_rate(problem: Problem, start_norm: Float64[np.ndarray, "b"]) -> Float64[np.ndarray, "b"]:
    """log of β/η = e^{−D‖p(0)‖} (1/n) Σ_i c_i gap_i / (4(T−1)), c_i the least |ℓ'| between the scores of input i.

    s(1 − s) = o/(1 + o)² for the odds o = Σ_{t≠opt} e^{−a_t} against the optimal token. |a_t| ≤ D‖p‖ puts log o into
    ±(D‖p‖ + log(T−1)), and o/(1 + o)² = 1/(2 + 2 cosh log o) ≥ e^{−|log o|}/4.
    """
    low, high = problem.scores.min(axis=1), problem.scores.max(axis=1)
    floors = np.array([problem.loss.log_floor(float(a), float(b)) for a, b in zip(low, high, strict=True)])
    total = float(np.logaddexp.reduce(floors + log_gaps(problem)))
    return total - math.log(4 * problem.n * (problem.T - 1)) - reach(problem) * start_norm


def climb_bound(
    problem: Problem, log_beta: Float64[np.ndarray, "b"], steps: Float64[np.ndarray, "r"]
) -> Float64[np.ndarray, "r b"]:
    """log(1 + D² β t)/D², by which ⟨p(t), p_mm⟩ has grown at least, shape (r, b)."""
    D = reach(problem)
    with np.errstate(divide="ignore"):
        log_steps = np.log(steps)[:, None]
    return np.asarray(np.logaddexp(0.0, 2 * math.log(D) + log_beta + log_steps) / D**2)


def correlation_deficit(
    norms: Float64[np.ndarray, "r b"], lengths: Float64[np.ndarray, "r-1 b"], lag: float
) -> Float64[np.ndarray, "r b"]:
    """What ⟨p(t), p̄_mm⟩ − ⟨p(b), p̄_mm⟩ may fall short of ‖p(t)‖ − ‖p(b)‖ for n = 1, shape (r, b).

    λ log((‖p(t)‖ + λ)/(‖p(b)‖ + λ)) + Σ_{b≤s<t} ‖p(s+1) − p(s)‖²/(2(‖p(s)‖ + λ)), λ = ‖p_mm‖ log(T−1); b = 0, or 1
    where ‖p(0)‖ + λ = 0 (the first step of such a start is along p_mm itself).
    """
    base = np.where(norms[0] + lag > 0, norms[0], norms[1])
    shifted = norms[:-1] + lag
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shifted > 0, lengths**2 / (2 * shifted), 0.0)
        bend = lag * np.log1p((norms - base) / (base + lag)) if lag > 0 else np.zeros_like(norms)
    return np.asarray(bend + np.concatenate([np.zeros_like(terms[:1]), np.cumsum(terms, axis=0)]))


def relative_climb_error(error: Float64[np.ndarray, "b n"]) -> Float64[np.ndarray, "b n"]:
    """Relative error of the exponential of :func:`log_climb`."""
    return relative_error(np.minimum(error, 700.0))
