"""W_fin, the part of W that stays finite where attention mixes tokens, and a path's offset from the ray of W^mm.

In Section 6 of the source, the best attention on input i is a mixture s⋆_i of the tokens of a set O_i. W_fin is the W
of least norm for which softmax mixes the tokens of each O_i in these proportions: (x_it − x_iτ)ᵀ W z_i =
log(s⋆_it/s⋆_iτ) for t, τ ∈ O_i. Logarithms of rationals are not rational, but everything else is; so each number here
is a rational combination of logarithms, computed in balls. E and G are the rows of :class:`.general_svm.SetRows`, W^mm
is the solution of Gen-SVM with the duals λ_j, and α_i ∈ O_i is the token to which rows refer. G_S are the rows of G
with λ_j > 0, and c_j = ν_j s⋆_iα, where ν_j is the multiplier of the token of row j in
:class:`reference_attention.optimal_attention.OptimalAttention`.

References: *Transformers as Support Vector Machines*, Section 6; F. Johansson, *Arb: efficient arbitrary-precision
midpoint-radius interval arithmetic* (2017).
"""

from __future__ import annotations

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from reference_attention.optimal_attention import OptimalAttention
from reference_attention.svm.general_svm import GeneralSvm, SetRows, Vector

BITS = 256
"""Precision of the balls in bits: several times a float's 53 bits and the bits that ill-conditioned equations cost."""

Balls = list[arb]
"""A vector of balls, numbers that are known up to an error bound."""


def log_ratios(rows: SetRows, attention: OptimalAttention, alpha: list[int]) -> Balls:
    """Return log(s⋆_iα/s⋆_it) for each row (i, t) of E, where s⋆ are the weights of ``attention``."""
    weights = attention.weights
    return [arb(weights[i][alpha[i]] / weights[i][t]).log() for i, t in rows.level]


def least_norm_point(rows: list[Vector], values: Balls, d: int) -> Balls:
    """Return the p of least norm with row·p = value for each row: Gᵀ(GGᵀ)⁻¹b for independent rows G and values b.

    Args:
        rows: the rows; only a maximal independent subset is used, so the values of the other rows must follow from its
            values.
        values: b, one value for each row.
        d: the length of a row.
    """
    independent = independent_part(rows)
    if not independent:
        return [arb(0)] * d
    matrix = fmpq_mat([rows[k] for k in independent])
    solver = matrix.transpose() * (matrix * matrix.transpose()).inv()
    return list((arb_mat(solver) * arb_mat(len(independent), 1, [values[k] for k in independent])).entries())


def independent_part(rows: list[Vector]) -> list[int]:
    """Return the indices of the rows that are linearly independent of the rows before them, decided exactly."""
    if not rows:
        return []
    reduced, rank = fmpq_mat(rows).transpose().rref()
    return [next(j for j in range(len(rows)) if reduced[r, j] != 0) for r in range(int(rank))]


def finite_part(svm: GeneralSvm, attention: OptimalAttention) -> Balls:
    """Return vec(W_fin), the part of W that stays finite."""
    with ctx.workprec(BITS):
        ratios = log_ratios(svm.rows, attention, svm.alpha.tolist())
        return least_norm_point(list(svm.rows.level.values()), ratios, len(svm.point))


def mixing_offset(svm: GeneralSvm, attention: OptimalAttention) -> Balls:
    """Return the offset o = lim (W̄_R − ρ W^mm) of the regularization path W̄_R as its radius R grows.

    Here ρ is the coefficient for which the difference is orthogonal to W^mm. In the notation of the module, o is the
    least-norm point with the products log(s⋆_iα/s⋆_it) on the rows E and log(c_j/λ_j) on the rows G_S, minus its
    component along W^mm. The rows of E and G_S must be independent, and all constraints of margin 1 must have λ_j > 0.
    """
    with ctx.workprec(BITS):
        return _across(svm, least_norm_point(*_offset_system(svm, attention), len(svm.point)))


def offset_correction(svm: GeneralSvm, attention: OptimalAttention) -> Balls:
    """Return o₂ in the expansion W̄_R = ρ W^mm + o + o₂/ρ + O(1/ρ²) of the regularization path W̄_R.

    The offset o and ρ are those of :func:`mixing_offset`. Write o = Σ_j o_j G_j plus a combination of the rows of E.
    Then o₂ is determined by ⟨G_j, o₂⟩ = −o_j/λ_j + t, with the same t for all j, and by E o₂ = 0.
    """
    with ctx.workprec(BITS):
        rows, values = _offset_system(svm, attention)
        matrix = fmpq_mat(rows)
        least = arb_mat((matrix * matrix.transpose()).inv()) * arb_mat(len(rows), 1, values)
        # The multipliers μ and duals λ of ``svm`` are the coefficients of W^mm in the rows of E and G_S; ``least`` are
        # those of the least-norm point, from which its component along W^mm is subtracted.
        multipliers = [svm.multipliers.get(pair, fmpq(0)) for pair in svm.rows.level] + list(svm.duals.values())
        point = arb_mat(matrix.transpose()) * least
        along = _product(point.entries(), svm.point) / arb(svm.norm_squared)
        shares = [a - along * arb(b) for a, b in zip(least.entries(), multipliers, strict=True)]
        levels = len(svm.rows.level)
        targets = [-share / arb(dual) for share, dual in zip(shares[levels:], svm.duals.values(), strict=True)]
        return _across(svm, least_norm_point(rows, [arb(0)] * levels + targets, len(svm.point)))


def _offset_system(svm: GeneralSvm, attention: OptimalAttention) -> tuple[list[Vector], Balls]:
    """Return the rows of E and G_S and the products with them that determine the offset; see :func:`mixing_offset`."""
    alpha = svm.alpha.tolist()
    rows = list(svm.rows.level.values()) + [svm.rows.masked[pair] for pair in svm.duals]
    costs = [
        arb(attention.multipliers[i][t] * attention.weights[i][alpha[i]] / dual).log()
        for (i, t), dual in svm.duals.items()
    ]
    return rows, log_ratios(svm.rows, attention, alpha) + costs


def _across(svm: GeneralSvm, point: Balls) -> Balls:
    """Return a point minus its component along W^mm."""
    along = _product(point, svm.point) / arb(svm.norm_squared)
    return [x - along * arb(w) for x, w in zip(point, svm.point, strict=True)]


def _product(balls: Balls, exact: Vector) -> arb:
    """Return the inner product of balls and rationals."""
    return sum((x * arb(w) for x, w in zip(balls, exact, strict=True)), arb(0))
