"""The check, by weak duality over the rationals, that a point has the largest margin in a norm.

For every p and all numbers λ ≥ 0, one per row g, min g·p/‖p‖ ≤ γ ≤ ‖Σλg‖_*/Σλ, where γ is the largest margin and ‖·‖_*
the dual norm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64, Int64

from reference_attention.exact import combination, products, rational, to_floats
from reference_attention.norms import Blocks, Norm, Schatten, conjugate
from reference_attention.outer_keys import Keys
from reference_attention.svm.norm_max_margin import ACCEPTED, LINEAR, NormMaxMargin, Rational, exact_norm, rational_rows
from theorems.bounded import with_rounding
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise
from theorems.core.matrix_norms import nuclear_norm_above, spectral_norm_above
from theorems.core.tolerances import EXACT, tolerance
from theorems.steepest_descent.norms import norm_of

ENCLOSED = 2 * ACCEPTED
"""The relative distance allowed between the lower and the upper bound of γ; in ‖·‖_1 and ‖·‖_∞ it is 0.

It is twice the largest duality gap of the solver: half is for this gap, half for rational bounds of norms of matrices.
"""
MARGIN_WIDTH = tolerance(
    "norm-margin-width",
    "2e-7 γ for 1 < q < ∞ and norms of matrices, 0 for q = 1, ∞",
    "for q = 1, ∞ both bounds of γ are rational and equal; otherwise the solver returns no solution with a duality"
    " gap above 1e-7, and another 1e-7 is for rational bounds of norms of matrices; all claims use the lower bound"
    " of γ",
)
NORM_MARGIN = premise("norm-margin-is-largest")


def margin_claim(keys: Keys, alpha: Int64[np.ndarray, "n"], norm: Norm, solution: NormMaxMargin) -> Claim:
    """Claim min g·p/‖p‖ ≥ ‖Σλg‖_*/Σλ for the solution p and its duals λ, so that p has the largest margin.

    The claim is exact in ‖·‖_1 and ‖·‖_∞; otherwise it allows for :data:`ENCLOSED`. Norms of matrices are replaced by
    rational bounds. Weak duality needs only λ ≥ 0: Σλ min g·p ≤ Σλg·p ≤ ‖Σλg‖_* ‖p‖.
    """
    rows = rational_rows(keys, alpha)
    duals, p = list(solution.exact_duals), list(solution.exact_p)
    wrong = ""
    if solution.norm != norm or len(p) != keys.shape[2] or len(duals) != len(rows):
        wrong = "the solution is for another norm, or its sizes do not fit the keys"
    elif any(x < 0 for x in duals) or not sum(duals, fmpq(0)) > 0:
        wrong = "a dual is negative, or all duals are 0"
    elif not (least := min(products(rows, p))) > 0:
        wrong = "the point does not separate the optimal tokens"
    if wrong:
        return Claim(NORM_MARGIN, Form.EXACT, -np.inf, 0.0, EXACT, wrong)
    combined, total = combination(rows, duals, keys.shape[2]), sum(duals, fmpq(0))
    if isinstance(norm, Schatten | Blocks) or norm in LINEAR:
        above, size = rational_length(combined, conjugate(norm)), rational_length(p, norm)
        if above is None or size is None:
            return Claim(NORM_MARGIN, Form.EXACT, -np.inf, 0.0, EXACT, "the norm of p or of Σλg could not be bounded")
        below, above = least / size, above / total
        slack = float(to_floats([below / above - 1])[0])
        if isinstance(norm, Schatten | Blocks):
            return Claim(NORM_MARGIN, Form.EXACT, slack, ENCLOSED, MARGIN_WIDTH, f"γ is enclosed to {-slack:.3g}")
        return Claim(NORM_MARGIN, Form.EXACT, slack, 0.0, EXACT, f"γ = {float(to_floats([below])[0]):.17g}")
    sides: Any = norm_of(with_rounding(to_floats(combined)), conjugate(norm)) * norm_of(
        with_rounding(to_floats(p)), norm
    )
    apart = 1 - sides / (with_rounding(to_floats([total]))[0] * with_rounding(to_floats([least]))[0])
    detail = f"γ is enclosed to {-float(apart.value):.3g}"
    return Claim(NORM_MARGIN, Form.EXACT, float(apart.value), ENCLOSED + float(apart.error), MARGIN_WIDTH, detail)


def block_length_above(x: Rational, members: Float64[np.ndarray, "k"]) -> fmpq:
    """Return a rational upper bound of the Euclidean norm of a block of x, with a relative error of about 2^−50.

    Args:
        x: the vector.
        members: numbers that are not 0 at the entries of the block, and 0 at all others.
    """
    square = sum((entry * entry for entry, inside in zip(x, members, strict=True) if inside), fmpq(0))
    if square == 0:
        return square
    root = rational(math.nextafter(math.sqrt(to_floats([square])[0]), math.inf))
    while root * root < square:
        root *= 1 + fmpq(1, 2**50)
    return root


def rational_length(x: Rational, norm: Norm) -> fmpq | None:
    """Return ‖x‖_1, ‖x‖_∞ or, for x = vec W, an upper bound of a matrix norm ‖W‖; None where no bound is found."""
    if isinstance(norm, Blocks):
        sizes = [block_length_above(x, members) for members in norm.members.T]
        return max(sizes) if norm.power == math.inf else sum(sizes, fmpq(0))
    if not isinstance(norm, Schatten):
        return exact_norm(x, norm)
    matrix = fmpq_mat(*norm.shape, x)
    return nuclear_norm_above(matrix) if norm.power == 1 else spectral_norm_above(matrix)
