"""The best attention under a head h(x) = vᵀx − λ‖x‖² that prefers mixtures: an exact projection on the simplex.

On orthonormal tokens h(Xᵀs) = γᵀs − λ‖s‖² with γ = Xv, so the best weights are the projection of γ/(2λ) on the simplex.
The weights and the multipliers ν_t ≥ 0 of the tokens without weight are rational.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Int64

from reference_attention.errors import InvalidInput

Rationals = tuple[tuple[fmpq, ...], ...]
"""Rational numbers, one for each token of each input."""


@dataclass(frozen=True, eq=False)
class OptimalAttention:
    """The maximiser s⋆ of γᵀs − λ‖s‖² on the simplex, for each input.

    Attributes:
        weights: s⋆, for n inputs of T tokens.
        multipliers: ν ≥ 0 with ν_t = μ − γ_t + 2λ s⋆_t and ν_t s⋆_t = 0, for n inputs of T tokens.
        levels: μ, the common value of γ_t − 2λ s⋆_t where s⋆_t > 0, one per input.
    """

    weights: Rationals
    multipliers: Rationals
    levels: tuple[fmpq, ...]

    @property
    def sets(self) -> Bool[np.ndarray, "n T"]:
        """Return the supports O_i = supp s⋆_i as a mask, shape (n, T)."""
        return np.array([[w > 0 for w in row] for row in self.weights], dtype=np.bool_)

    @property
    def first(self) -> Int64[np.ndarray, "n"]:
        """Return the (first) token of largest weight of each input, α_i ∈ O_i, shape (n,)."""
        return np.array([max(range(len(row)), key=lambda t: (row[t], -t)) for row in self.weights], dtype=np.int64)


def optimal_attention(scores: Sequence[Sequence[fmpq]], penalty: fmpq) -> OptimalAttention:
    """Return the projection of γ_i/(2λ) on the simplex, for each input.

    Args:
        scores: γ, for n inputs of T tokens.
        penalty: λ.

    Raises:
        InvalidInput: λ ≤ 0.
    """
    if penalty <= 0:
        raise InvalidInput(f"penalty: {penalty} is not positive; give λ > 0, with which mixtures are best.")
    weights, multipliers, levels = [], [], []
    for row in scores:
        level = _level(sorted(row, reverse=True), penalty)
        weights.append(tuple(max(score - level, fmpq(0)) / (2 * penalty) for score in row))
        multipliers.append(tuple(max(level - score, fmpq(0)) for score in row))
        levels.append(level)
    return OptimalAttention(tuple(weights), tuple(multipliers), tuple(levels))


def _level(descending: list[fmpq], penalty: fmpq) -> fmpq:
    """Return μ with Σ_t max(γ_t − μ, 0) = 2λ, from scores in descending order.

    μ equals μ_τ = (Σ_{t≤τ} γ_t − 2λ)/τ, the value for the τ largest scores, where τ is the last index with μ_τ < γ_τ.
    """
    total, level = fmpq(0), fmpq(0)
    for tau, score in enumerate(descending, start=1):
        total += score
        if tau > 1 and (total - 2 * penalty) / tau >= score:
            break
        level = (total - 2 * penalty) / tau
    return level
