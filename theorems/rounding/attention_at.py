"""Softmax attention at points, as formulas on bounded arrays.

Independent of :mod:`reference_attention.risk`, which is under test: the covariance of scores and keys under the softmax
weights is taken pairwise, Σ_u s_t s_u (γ_t − γ_u), so that nothing cancels at any norm of the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.problem import Problem
from theorems.rounding.bounded import Bounded, exact, rounded, spacing
from theorems.rounding.softmax import softmax

EXPONENTIAL = 20.0
"""Units in the last place by which a kernel's exponential may be off: ``exp_u20`` of PyTorch's vectorised CPU
kernels.
"""


@dataclass(frozen=True, eq=False)
class AttentionAt:
    """Softmax attention of a problem at points p, (b, d), with what float64 loses of it."""

    problem: Problem
    points: Float64[np.ndarray, "b d"]

    @cached_property
    def token(self) -> Int64[np.ndarray, "b n"]:
        """The token of about the largest logit, which differences refer to."""
        return np.argmax(np.vecdot(self.problem.keys, self.points[:, None, None]), axis=-1)

    @cached_property
    def key_differences(self) -> Bounded:
        """k_t − k_token, (b, n, T, d)."""
        keys = self.problem.keys
        return exact(keys) - keys[np.arange(self.problem.n), self.token][:, :, None]

    @cached_property
    def log_weights(self) -> Bounded:
        """log s_t, (b, n, T)."""
        logits: Any = np.vecdot(self.key_differences, self.points[:, None, None])
        log_weights: Any = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return log_weights

    @cached_property
    def weights(self) -> Bounded:
        """s_t, (b, n, T)."""
        weights: Any = np.exp(self.log_weights)
        return weights

    @cached_property
    def outputs(self) -> Bounded:
        """γ_iᵀ s_i, (b, n)."""
        scores = exact(self.problem.scores)
        best = self.problem.scores[np.arange(self.problem.n), self.token]
        return best + np.sum(self.weights * (scores - best[..., None]), axis=-1)

    @cached_property
    def risk(self) -> Bounded:
        """L = (1/n) Σ_i ℓ(γ_iᵀ s_i), (b,)."""
        return np.mean(self.problem.loss.value(self.outputs), axis=-1)

    @cached_property
    def log_slopes(self) -> Bounded:
        """log |ℓ'(γ_iᵀ s_i)|, (b, n)."""
        return self.problem.loss.log_slope(self.outputs)

    @cached_property
    def _spreads(self) -> tuple[Float64[np.ndarray, "b n T"], Any]:
        """m and γ_t − γᵀs = e^m Σ_u e^{log s_u − m} (γ_t − γ_u), m the largest log s_u of a token with another score;
        (b, n, T).

        m is a float taken as exact, so the second factor is of the size of score gaps however small the weights are.
        """
        scores: Any = exact(self.problem.scores)
        gaps: Any = scores[:, :, None] - scores[:, None, :]
        other = gaps.value != 0
        others: Any = np.where(other, self.log_weights[..., None, :], -np.inf)
        largest = np.max(others.value, axis=-1)
        largest = np.where(np.isfinite(largest), largest, 0.0)
        return largest, np.vecdot(np.exp(others - largest[..., None]), gaps)

    @cached_property
    def _log_factors(self) -> Any:
        """log(|ℓ'_i| s_t e^m), −∞ at the token that keys are taken relative to and at its duplicates; (b, n, T)."""
        apart = np.any(self.key_differences.value != 0, axis=-1)
        slopes: Any = self.log_slopes
        return np.where(apart, self.log_weights + slopes[..., None] + self._spreads[0], -np.inf)

    @cached_property
    def log_scale(self) -> Float64[np.ndarray, "b"]:
        """The unit of the gradient, a float taken as exact: about its largest term; 0 where ∇L vanishes term by
        term.
        """
        with np.errstate(divide="ignore"):
            sizes = self._log_factors.value + np.log(np.abs(self._spreads[1].value))
        scale = np.max(sizes, axis=(1, 2))
        return np.where(np.isfinite(scale), scale, 0.0)

    @cached_property
    def gradient(self) -> Bounded:
        """∇L e^{−log_scale} = −(1/n) Σ_i |ℓ'_i| Σ_t s_t (γ_t − γᵀs) δk_t, (b, d)."""
        terms: Any = np.exp(self._log_factors - self.log_scale[:, None, None]) * self._spreads[1]
        gradient: Any = -np.sum(terms[..., None] * self.key_differences, axis=(1, 2)) / self.problem.n
        return gradient


def textbook_gradient(problem: Problem, points: Float64[np.ndarray, "b d"], eps: float) -> Bounded:
    """∇L, (b, d), as a kernel computes it that knows no differences and no logarithms, in numbers of spacing ``eps``.

    Its maximum, subtracted within the differentiated graph, has the gradient −Σ c, zero but for rounding: it falls on
    whichever token was the largest.
    """
    with spacing(eps, EXPONENTIAL):
        keys, scores, p = rounded(problem.keys), rounded(problem.scores), rounded(points)
        s = softmax(np.vecdot(keys, p[:, None, None]))
        f = np.sum(s * scores, axis=-1)
        c = s * (scores - f[..., None])
        stray = np.max(np.abs(keys), axis=-2) * np.sum(c, axis=-1).error[..., None]
        slopes = np.exp(problem.loss.log_slope(f))
        inner = np.sum(c[..., None] * keys, axis=-2).widened(stray.value + stray.error)
        return -np.mean(slopes[..., None] * inner, axis=1)
