"""Factors (K, Q) at points of a run, with gradient, imbalance KᵀK − QᵀQ and margins at each point, and error bounds.

The factor e^{−log_scale} of a gradient, one per point, keeps small gradients within the range of float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem
from reference_attention.training.factorization import Layout
from theorems.bounded import Bounded, exact, value_of
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers


@dataclass(frozen=True, eq=False)
class FactoredPoints:
    """Points (K, Q), b of them, with error bounds.

    Attributes:
        problem: keys vec(x zᵀ), scores, loss.
        K, Q: the factors, (b, d, m) and (b, e, m).
    """

    problem: Problem
    K: Any
    Q: Any

    @classmethod
    def of(cls, problem: Problem, K: Float64[np.ndarray, "b d m"], Q: Float64[np.ndarray, "b e m"]) -> FactoredPoints:
        """Return points whose factors are exactly the given floats."""
        return cls(problem, exact(K), exact(Q))

    @property
    def layout(self) -> Layout:
        """The layout of the entries of K and Q in one vector."""
        return Layout(self.K.shape[1], self.Q.shape[1], self.K.shape[2])

    @cached_property
    def W(self) -> Numbers:
        """The products K Qᵀ, (b, d, e)."""
        return np.einsum("bik,bjk->bij", self.K, self.Q)

    @cached_property
    def imbalance(self) -> Numbers:
        """The imbalance Δ = KᵀK − QᵀQ, (b, m, m)."""
        return np.einsum("bik,bil->bkl", self.K, self.K) - np.einsum("bik,bil->bkl", self.Q, self.Q)

    @cached_property
    def at(self) -> AttentionAt:
        """The attention at vec(K Qᵀ), with the error bounds of the product."""
        return AttentionAt(self.problem, self.W.reshape(len(self.W), -1))

    @cached_property
    def at_floats(self) -> AttentionAt:
        """The attention at vec(K Qᵀ) rounded to floats, where the implementation under test can be evaluated."""
        return AttentionAt(self.problem, value_of(self.W).reshape(len(self.W), -1))

    def gradient_of(self, under_test: Implementation, claim: str) -> Numbers:
        """Return the gradient ∇L(K Qᵀ) e^{−log_scale} of the implementation under test, (b, d·e).

        The gradient is evaluated at K Qᵀ rounded to floats; the effect of this rounding is added to its error bounds.
        """
        theirs: Any = self.at_floats.gradient_of(under_test, claim)
        enclosed = self.at.gradient
        return theirs.widen(2 * enclosed.error) if isinstance(enclosed, Bounded) else theirs

    def joint(self, gradient: Numbers) -> Numbers:
        """Return the gradients (∇L Q, ∇Lᵀ K) in K and Q as vectors, (b, (d + e) m), from ∇L in W = KQᵀ, (b, d·e)."""
        G: Any = gradient.reshape(self.W.shape)
        by_k, by_q = np.einsum("bij,bjk->bik", G, self.Q), np.einsum("bij,bik->bjk", G, self.K)
        flat = (len(self.W), -1)
        return np.concatenate([by_k.reshape(flat), by_q.reshape(flat)], axis=1)

    def margins(self, rows: Any) -> Numbers:
        """Compute the margins m(W) = min_j ⟨G_j, W⟩, (b,), from the rows G_j = (x_i,opt − x_it) z_iᵀ, (N, d·e)."""
        return np.min(self.W.reshape(len(self.W), -1) @ rows.T, axis=-1)
