"""The best softmax weights under a head h(x) = vᵀx − λ‖x‖² that prefers mixtures: an exact projection on the simplex.

On orthonormal tokens X, the output at weights s is h(Xᵀs) = γᵀs − λ‖s‖² with the scores γ = Xv. So the best weights are
the projection of γ/(2λ) on the simplex. They are rational, and so are the multipliers ν_t ≥ 0 of the constraints s_t ≥
0.

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
"""Rational numbers, one for each token of each input: n tuples of T numbers."""


@dataclass(frozen=True, eq=False)
class OptimalAttention:
    """The maximiser s⋆ of γᵀs − λ‖s‖² over weights s ≥ 0 with sum 1, for each input; γ are its scores.

    Attributes:
        weights: s⋆, n inputs of T tokens.
        multipliers: the multipliers ν_t = μ − γ_t + 2λ s⋆_t ≥ 0 of the constraints s_t ≥ 0, with ν_t s⋆_t = 0, n inputs
            of T tokens.
        levels: μ, the value of γ_t − 2λ s⋆_t at all tokens with s⋆_t > 0, one per input.
    """

    weights: Rationals
    multipliers: Rationals
    levels: tuple[fmpq, ...]

    @property
    def sets(self) -> Bool[np.ndarray, "n T"]:
        """Return a mask of the tokens with positive weight s⋆_t, shape (n, T)."""
        return np.array([[w > 0 for w in row] for row in self.weights], dtype=np.bool_)

    @property
    def first(self) -> Int64[np.ndarray, "n"]:
        """Return for each input the token of largest weight s⋆_t, the first one if several are equal, shape (n,)."""
        return np.array([max(range(len(row)), key=lambda t: (row[t], -t)) for row in self.weights], dtype=np.int64)


def optimal_attention(scores: Sequence[Sequence[fmpq]], penalty: fmpq) -> OptimalAttention:
    """Return the best weights s⋆ of each input, the projection of its γ/(2λ) on the simplex.

    Args:
        scores: γ, n inputs of T tokens.
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
    """Return the μ with Σ_t max(γ_t − μ, 0) = 2λ, from the scores γ of one input in descending order.

    If the τ largest scores exceed μ, then μ = μ_τ with μ_τ = (Σ_{t≤τ} γ_t − 2λ)/τ. The right τ is the last index with
    μ_τ < γ_τ.
    """
    total, level = fmpq(0), fmpq(0)
    for tau, score in enumerate(descending, start=1):
        total += score
        if tau > 1 and (total - 2 * penalty) / tau >= score:
            break
        level = (total - 2 * penalty) / tau
    return level
