"""Bounds of C_⋆, the least ‖W‖_⋆ with ⟨a_j z_jᵀ, W⟩ ≥ b_j for all j, by weak duality, in balls.

For every λ ≥ 0 with M = Σ λ_j a_j z_jᵀ, and all factors K, Q of a W = KQᵀ that separates,

    Σ b_j λ_j/‖M‖_op ≤ C_⋆ ≤ ½(‖K‖_F² + ‖Q‖_F²)/m,

where m is the least ratio ⟨a_j z_jᵀ, W⟩/b_j. The reasons are that every feasible W satisfies ‖W‖_⋆ ≥ ⟨M, W⟩/‖M‖_op ≥
Σ λ_j b_j/‖M‖_op, and that ‖KQᵀ‖_⋆ ≤ ½(‖K‖_F² + ‖Q‖_F²). No solver is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flint import arb, arb_mat

from reference_attention.svm.ball_matrices import least_eigenvalue, multiply, precision, squared_norm


def dual_matrix(a: arb_mat, z: arb_mat, duals: Sequence[arb]) -> arb_mat:
    """Return M = Σ λ_j a_j z_jᵀ for the duals λ."""
    weighted = [[x * y for y in row] for x, row in zip(duals, z.tolist(), strict=True)]
    return a.transpose() * arb_mat(weighted)


def margins_of(a: arb_mat, z: arb_mat, K: arb_mat, Q: arb_mat) -> list[arb]:
    """Return the margins ⟨a_j z_jᵀ, KQᵀ⟩, one for every j."""
    pairs = zip((a * K).tolist(), (z * Q).tolist(), strict=True)
    return [sum((x * y for x, y in zip(*pair, strict=True)), arb(0)) for pair in pairs]


def least_value(a: arb_mat, z: arb_mat, b: Sequence[arb], duals: Sequence[arb]) -> arb:
    """Return a lower bound of Σ b_j λ_j/‖M‖_op; 0 if ‖M‖_op cannot be bounded or some λ_j may be negative."""
    with precision():
        if any(not x >= 0 for x in duals):
            return arb(0)
        M = dual_matrix(a, z, duals)
        square = M * M.transpose() if M.nrows() < M.ncols() else M.transpose() * M
        size = sum((square[i, i] for i in range(square.nrows())), arb(0))
        if not size > 0:
            return arb(0)
        # Scaled by 1/size, the largest eigenvalue is near one.
        largest = -least_eigenvalue(multiply(square, -1 / size)) * size
        total = sum((x * y for x, y in zip(b, duals, strict=True)), arb(0))
        bound = (total / largest.upper().sqrt()).lower()
        return bound if bound > 0 else arb(0)


def most_value(a: arb_mat, z: arb_mat, b: Sequence[arb], K: arb_mat, Q: arb_mat) -> arb:
    """Return an upper bound of ½(‖K‖_F² + ‖Q‖_F²)/m, or +∞ where m is not proven positive.

    m is the least ratio ⟨a_j z_jᵀ, KQᵀ⟩/b_j.
    """
    with precision():
        least = None
        for margin, bound in zip(margins_of(a, z, K, Q), b, strict=True):
            ratio = (margin / bound).lower()
            least = ratio if least is None or ratio < least else least
        if least is None or not least > 0:
            return arb(math.inf)
        return ((squared_norm(K) + squared_norm(Q)) / (2 * least)).upper()
