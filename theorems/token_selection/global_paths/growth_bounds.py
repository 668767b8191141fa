"""Explicit bounds on gradient descent under Assumption B: how fast it climbs along p_mm, how long it can stay askew.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2, Lemmas 4 to 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.core.key_rows import key_rows
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.bounded import Bounded, exact, value_of


def approximate(x: Float64[np.ndarray, "*b"], error: Float64[np.ndarray, "*b"]) -> Numbers:
    """Floats with an error that is argued: of a scalar formula, or of an iterate."""
    taken = exact(x)
    return taken.widened(error) if isinstance(taken, Bounded) else taken


def log_gaps(problem: Problem) -> Numbers:
    """log gap_i, gap_i = γ_i,opt − the common score of the other tokens (Assumption B)."""
    return np.log(exact(problem.scores.max(axis=1)) - problem.scores.min(axis=1))


def reach(problem: Problem) -> Numbers:
    """D = max ‖k_i,opt − k_it‖."""
    return np.max(np.linalg.norm(key_rows(problem, problem.optimal), axis=2))


def log_climb(at: AttentionAt) -> Numbers:
    """Lemma 4's terms: log of (1/n)|ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt), (b, n)."""
    factors = at.log_slopes + (log_gaps(at.problem) - np.log(exact(at.problem.n)))
    return factors + at.log_weight_of(at.problem.optimal) + at.log_complement(at.problem.optimal)


def log_rate(problem: Problem, start_norm: Any) -> Numbers:
    """log of β/η = e^{−D‖p(0)‖} (1/n) Σ_i c_i gap_i / (4(T−1)), c_i the least |ℓ'| between the scores of input i.

    s(1 − s) = o/(1 + o)² for the odds o = Σ_{t≠opt} e^{−a_t} against the optimal token. |a_t| ≤ D‖p‖ puts log o into
    ±(D‖p‖ + log(T−1)), and o/(1 + o)² = 1/(2 + 2 cosh log o) ≥ e^{−|log o|}/4.
    """
    low, high = problem.scores.min(axis=1), problem.scores.max(axis=1)
    floors = np.array([problem.loss.log_floor(float(a), float(b)) for a, b in zip(low, high, strict=True)])
    total = np.logaddexp.reduce(approximate(floors, 8 * EPS * (1 + np.abs(floors))) + log_gaps(problem))
    return total - np.log(exact(4 * problem.n * (problem.T - 1))) - reach(problem) * start_norm


def climb_bound(problem: Problem, log_beta: Any, steps: Any) -> Numbers:
    """log(1 + D² β t)/D², by which ⟨p(t), p_mm⟩ has grown at least, shape (r, b)."""
    D = reach(problem)
    return np.logaddexp(0.0, 2 * np.log(D) + log_beta + np.log(exact(steps))[:, None]) / (D * D)


def correlation_deficit(norms: Any, lengths: Any, lag: Any) -> Any:
    """What ⟨p(t), p̄_mm⟩ − ⟨p(b), p̄_mm⟩ may fall short of ‖p(t)‖ − ‖p(b)‖ for n = 1, shape (r, b).

    λ log((‖p(t)‖ + λ)/(‖p(b)‖ + λ)) + Σ_{b≤s<t} ‖p(s+1) − p(s)‖²/(2(‖p(s)‖ + λ)), λ = ‖p_mm‖ log(T−1); b = 0, or 1
    where ‖p(0)‖ + λ = 0 (the first step of such a start is along p_mm itself).
    """
    shifted = norms + lag
    away = value_of(shifted)[:-1] > 0
    base = np.where(away[0], shifted[0], shifted[1])
    halves = 2 * np.where(away, shifted[:-1], 1.0)
    terms = np.where(away, lengths * lengths / halves, 0.0)
    bend = lag * np.log1p((shifted - base) / base) if value_of(lag) > 0 else np.zeros_like(norms)
    return bend + np.concatenate([np.zeros_like(terms[:1]), np.cumsum(terms, axis=0)])
