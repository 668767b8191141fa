"""The largest margin of chosen tokens among prompts with ‖p‖ ≤ 1: γ = max min_it (k_iα − k_it)·p, with a proof.

For q = 1 and q = ∞ the problem is a linear program, solved over the rationals, and γ is exact, as for q = 2. For other
q, and for the nuclear norm, the spectral norm and the norms of blocks, p and its duals λ come from a barrier method.
For any p and λ ≥ 0, with the rows g_j = k_iα − k_it,

    min_j g_j·p/‖p‖ ≤ γ ≤ ‖Σ_j λ_j g_j‖_*/Σ_j λ_j,  with the dual norm ‖·‖_*: ‖·‖_{q'} for ‖·‖_q, 1/q + 1/q' = 1,

so wrong p or λ only widen this enclosure of γ; p is rejected if the enclosure is wider than :data:`ACCEPTED`. For q = 1
and q = ∞ solutions need not be unique, but γ is.

References: Gunasekar, Lee, Soudry, Srebro, *Characterizing Implicit Bias in Terms of Optimization Geometry*, ICML 2018;
scipy.optimize (HiGHS).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq
from jaxtyping import Float64, Int64

from reference_attention.errors import InvalidInput
from reference_attention.exact import combination, products, rational, to_float, to_floats
from reference_attention.norms import Blocks, Norm, Schatten, conjugate, conjugate_power, length
from reference_attention.outer_keys import Keys, OuterKeys, rational_keys
from reference_attention.svm import barriers
from reference_attention.svm.linear_max_margin import linear_max_margin
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.svm.spectral_max_margin import spectral_max_margin

Rational = list[fmpq]
LINEAR = (1.0, math.inf)
"""The exponents q of the norms ‖·‖_q for which the largest margin is the value of a linear program."""
ACCEPTED = 1e-7
"""The largest accepted duality gap, relative to the margin γ. Gaps are usually below 1e-8 for matrices in floats, below
1e-12 where numbers of many digits are used, and 0 for q = 1, 2 and ∞."""


def dual_point(p: Float64[np.ndarray, "*b d"], norm: float) -> Float64[np.ndarray, "*b d"]:
    """Return the gradient of ‖p‖_q^q/q, whose entries are sign(p_j)|p_j|^{q−1}."""
    return np.asarray(np.sign(p) * np.abs(p) ** (norm - 1))


@dataclass(frozen=True, eq=False)
class NormMaxMargin:
    """A point p of exactly, or nearly, the largest margin γ in a norm, and duals that prove it.

    Attributes:
        alpha: the chosen tokens, (n,).
        norm: the exponent q of ‖·‖_q, 1 ≤ q ≤ ∞, or a norm of matrices.
        exact_p: p over the rationals, scaled to least margin 1, (d,); possibly one of many solutions.
        exact_duals: λ ≥ 0, one for each row g_it = k_iα − k_it, t ≠ α_i, input by input, (n (T−1),).
        rows: the rows g_it, over the rationals.
    """

    alpha: Int64[np.ndarray, "n"]
    norm: Norm
    exact_p: Rational
    exact_duals: Rational
    rows: list[Rational]

    @cached_property
    def p(self) -> Float64[np.ndarray, "d"]:
        """Return p, each entry rounded once, (d,)."""
        return to_floats(self.exact_p)

    @cached_property
    def row_combination(self) -> Rational:
        """Return the combination Σ_j λ_j g_j of the rows with the duals, (d,)."""
        return combination(self.rows, self.exact_duals, len(self.exact_p))

    @cached_property
    def margin(self) -> float:
        """Return the least margin of p/‖p‖, a lower bound of the largest margin γ up to rounding."""
        return float(min(to_floats(products(self.rows, self.exact_p)))) / length(self.p, self.norm)

    @cached_property
    def primal_residual(self) -> float:
        """Return how far the least margin of p is below 1, computed exactly and rounded once."""
        return to_float(max(1 - min(products(self.rows, self.exact_p)), fmpq(0)))

    @cached_property
    def duality_gap(self) -> float:
        """Return the upper bound of the largest margin γ over its lower bound, minus 1; exactly 0 where they are equal.

        The bounds are those of the module. The gap is computed over the rationals for q = 1 and q = ∞.
        """
        total = sum(self.exact_duals, fmpq(0))
        if not isinstance(self.norm, Schatten | Blocks) and self.norm in LINEAR:
            sides = exact_norm(self.row_combination, conjugate_power(self.norm)) * exact_norm(self.exact_p, self.norm)
            return to_float(sides / (total * min(products(self.rows, self.exact_p))) - 1)
        above = length(to_floats(self.row_combination), conjugate(self.norm)) / to_float(total)
        return above / self.margin - 1


def exact_norm(x: Rational, norm: float) -> fmpq:
    """Return ‖x‖_1 or ‖x‖_∞, exactly."""
    sizes = [abs(entry) for entry in x]
    return max(sizes) if math.isinf(norm) else sum(sizes, fmpq(0))


def norm_max_margin(keys: Keys, alpha: Int64[np.ndarray, "n"], norm: Norm) -> NormMaxMargin | None:
    """Return a point with the largest margin of α in a norm; ``None`` if none separates α or no solution is proven.

    Raises:
        InvalidInput: a norm below 1, or a norm of matrices of another shape; the nuclear norm without the keys'
            factors.

    >>> import numpy as np
    >>> found = norm_max_margin(np.array([[[0.0, 0.0], [1.0, -1.0], [0.0, -3.0]]]), np.array([0]), np.inf)
    >>> found.exact_p, found.duality_gap
    ([-1/2, 1/2], 0.0)
    """
    rows = rational_rows(keys, alpha)
    if isinstance(norm, Schatten):
        solved = _of_matrices(keys, alpha, rows, norm)
    elif isinstance(norm, Blocks):
        solved = _of_blocks(keys, alpha, rows, norm)
    elif not norm >= 1:
        raise InvalidInput(f"norm: {norm} must be at least 1; below 1 there is no norm.")
    else:
        solved = linear_max_margin(rows, norm) if norm in LINEAR else _power(keys, alpha, rows, norm)
    if solved is None:
        return None
    return _accepted(alpha, norm, rows, *solved)


def _accepted(
    alpha: Int64[np.ndarray, "n"], norm: Norm, rows: list[Rational], p: Rational, duals: Rational
) -> NormMaxMargin | None:
    """Return the solution, with p scaled to least margin 1; None if the gap of p and λ exceeds :data:`ACCEPTED`."""
    least = min(products(rows, p))
    if not least > 0 or not sum(duals, fmpq(0)) > 0:
        return None
    solution = NormMaxMargin(alpha, norm, [x / least for x in p], duals, rows)
    return solution if solution.duality_gap <= ACCEPTED else None


def rational_rows(keys: Keys, alpha: Int64[np.ndarray, "n"]) -> list[Rational]:
    """Return the rows k_iα − k_it, t ≠ α_i, over the rationals, (n (T−1), d)."""
    flat = rational_keys(keys).tolist()
    tokens = len(flat) // len(alpha)
    chosen_keys = [flat[i * tokens + int(a)] for i, a in enumerate(alpha)]
    return [
        [x - y for x, y in zip(chosen_keys[i], flat[i * tokens + t], strict=True)]
        for i, a in enumerate(alpha)
        for t in range(tokens)
        if t != int(a)
    ]


def _of_matrices(
    keys: Keys, alpha: Int64[np.ndarray, "n"], rows: list[Rational], norm: Schatten
) -> tuple[Rational, Rational] | None:
    """Return W and its duals for the nuclear or spectral norm, in floats or, if these fail, with many digits."""
    if math.prod(norm.shape) != keys.shape[2]:
        raise InvalidInput(
            f"norm: the matrices of shape {norm.shape} must have {keys.shape[2]} entries, as vec(W) has."
        )
    if norm.power == 1 and not isinstance(keys, OuterKeys):
        raise InvalidInput("keys: the nuclear norm needs the factors of keys; give OuterKeys(tokens, queries).")
    svm = max_margin(keys, alpha)
    if not isinstance(svm, MaxMargin):
        return None
    solved = _matrix_in_floats(keys, svm, rows, norm)
    if solved is not None and _accepted(alpha, norm, rows, *solved) is not None:
        return solved
    if norm.power == 1:
        return barriers.nuclear_max_margin(rows, norm.shape, list(svm.exact.p), exact_duals_of(svm))
    return barriers.spectral_max_margin(rows, norm.shape, list(svm.exact.p))


def _of_blocks(
    keys: Keys, alpha: Int64[np.ndarray, "n"], rows: list[Rational], norm: Blocks
) -> tuple[Rational, Rational] | None:
    """Return W and its duals for the norm of the largest block, solved as a problem in the spectral norm.

    Let the matrix M, with a column per block, hold entry j of vec(W) in row j, in the column of the block to which the
    entry belongs, and 0 elsewhere. Then MᵀM is diagonal, with the squares of the blocks' Euclidean norms, so ‖M‖_op is
    the largest norm of a block. Admitting matrices of any form does not change the largest margin: to change the sign
    of a block is to multiply its rows and its column of the matrix by −1, and the mean of a matrix over all changes of
    signs has the form of M, with the same margin and no larger ‖·‖_op.

    Raises:
        InvalidInput: blocks of matrices of another shape; the norm that sums blocks, for which there is no solver.
    """
    if math.prod(norm.shape) != keys.shape[2] or norm.power == 1:
        raise InvalidInput(
            f"norm: {norm}, for shape {norm.shape}; give the largest norm of a block (power ∞), for a shape of"
            f" {keys.shape[2]} entries."
        )
    svm = max_margin(keys, alpha)
    if not isinstance(svm, MaxMargin):
        return None
    members = norm.members
    block_rows = (np.array([to_floats(row) for row in rows])[:, :, None] * members).reshape(len(rows), -1)
    in_floats = spectral_max_margin(block_rows, svm.p[:, None] * members)
    if in_floats is not None:
        W, duals = in_floats
        solved = [rational(x) for x in (W * members).sum(axis=1).tolist()], [rational(x) for x in duals.tolist()]
        if _accepted(alpha, norm, rows, *solved) is not None:
            return solved
    places = [j * members.shape[1] + int(block) for j, block in enumerate(members.argmax(axis=1))]

    def spread(row: Rational) -> Rational:
        matrix = [fmpq(0)] * members.size
        for place, x in zip(places, row, strict=True):
            matrix[place] = x
        return matrix

    with_digits = barriers.spectral_max_margin([*map(spread, rows)], members.shape, spread(list(svm.exact.p)))
    return None if with_digits is None else ([with_digits[0][place] for place in places], with_digits[1])


def _matrix_in_floats(
    keys: Keys, svm: MaxMargin, rows: list[Rational], norm: Schatten
) -> tuple[Rational, Rational] | None:
    """Return W and its duals for the nuclear or spectral norm by the solvers in floats; None if they fail."""
    if norm.power == 1:
        assert isinstance(keys, OuterKeys)
        nuclear = nuclear_max_margin(keys, svm.alpha)
        if not isinstance(nuclear, NuclearMaxMargin):
            return None
        others = np.arange(keys.shape[1]) != np.asarray(svm.alpha)[:, None]
        W, duals = nuclear.W, nuclear.duals[others]
    else:
        spectral = spectral_max_margin(np.array([to_floats(row) for row in rows]), norm.matrices(svm.p))
        if spectral is None:
            return None
        W, duals = spectral
    return [rational(x) for x in W.ravel().tolist()], [rational(x) for x in duals.tolist()]


def exact_duals_of(svm: MaxMargin) -> Rational:
    """Return the exact duals λ_it of ATT-SVM, one for each token t ≠ α_i, input by input, (n (T−1),)."""
    others = [(i, t) for i, t in np.ndindex(*svm.duals.shape) if t != int(svm.alpha[i])]
    return [svm.exact.duals.get(pair, fmpq(0)) for pair in others]


def _power(
    keys: Keys, alpha: Int64[np.ndarray, "n"], rows: list[Rational], norm: float
) -> tuple[Rational, Rational] | None:
    """Return p and its duals for ‖·‖_q: exact for q = 2, by a barrier method otherwise."""
    svm = max_margin(keys, alpha)
    if not isinstance(svm, MaxMargin):
        return None
    if norm == 2:
        return list(svm.exact.p), exact_duals_of(svm)
    return barriers.least_power(rows, norm, list(svm.exact.p))
