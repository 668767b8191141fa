"""A second solution of ATT-SVM⋆, over the rationals: a proof of non-uniqueness, if W and λ are simple fractions.

The problem is min ‖W‖_⋆ with margins ⟨G_j, W⟩ ≥ 1, G_j = a_j z_jᵀ, duals λ_j and M = Σ λ_j G_j. W and λ in floats are
rounded to fractions. The fractions are optimal if margins are at least 1, λ ≥ 0, I − MᵀM ⪰ 0, and W = MS with S = MᵀW ⪰
0 of trace Σλ_j, because then ‖W‖_⋆ = tr S = Σλ_j. If MD has margin 0 on all tight constraints for some symmetric D ≠ 0
in the range of S, then M(S + tD) is another solution for small t: its norm is tr S + tΣλ_j⟨G_j, MD⟩ = tr S.

Source: *Transformers as Support Vector Machines*, (Att-SVM⋆).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64

from reference_attention.exact import rational_matrix
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin

LARGEST_DENOMINATOR = 64
"""Largest denominator of the fractions to which floats are rounded."""
HALVINGS = 12
"""Number of values t = 1, ½, ¼, … that are tried; one of them is small enough unless the solution is nearly on the
boundary of the set of solutions."""


def two_nuclear_solutions(svm: NuclearMaxMargin) -> tuple[fmpq_mat, fmpq_mat] | None:
    """Return two different solutions over the rationals, (d, e) each; None if the search fails (no proof)."""
    rows = svm.rows
    chosen, tokens = rows.keys.tokens[rows.inputs, svm.alpha[rows.inputs]], rows.keys.tokens[rows.inputs, rows.tokens]
    a, z = rational_matrix(chosen) - rational_matrix(tokens), rational_matrix(rows.keys.queries[rows.inputs])
    W, duals = _fractions(svm.W), _fractions(svm.duals[rows.inputs, rows.tokens][:, None]).entries()
    M = a.transpose() * fmpq_mat([[x * y for y in row] for x, row in zip(duals, z.tolist(), strict=True)])
    S, e = M.transpose() * W, W.ncols()
    identity = fmpq_mat(e, e, [int(i == j) for i in range(e) for j in range(e)])
    margins = _margins(a, z, W)
    optimal = (
        min(margins) >= 1
        and min(duals) >= 0
        and S.transpose() == S
        and W == M * S
        and _trace(S) == sum(duals, fmpq(0))
        and is_semidefinite(identity - M.transpose() * M)
        and is_semidefinite(S)
    )
    D = _idle_direction(a, z, M, S, [j for j, m in enumerate(margins) if m == 1]) if optimal else None
    if D is None:
        return None
    for k in range(HALVINGS):
        other = W + M * D * fmpq(1, 2**k)
        if min(_margins(a, z, other)) >= 1 and is_semidefinite(S + D * fmpq(1, 2**k)):
            return W, other
    return None


def is_semidefinite(matrix: fmpq_mat) -> bool:
    """Return whether a symmetric matrix has no negative eigenvalue, by pivots of elimination over the rationals."""
    A, n = matrix.tolist(), matrix.nrows()
    for j in range(n):
        if A[j][j] < 0 or (A[j][j] == 0 and any(A[i][j] != 0 for i in range(j, n))):
            return False
        for i in range(j + 1, n):
            factor = A[i][j] / A[j][j] if A[j][j] != 0 else fmpq(0)
            for k in range(j + 1, n):
                A[i][k] -= factor * A[j][k]
    return True


def _idle_direction(a: fmpq_mat, z: fmpq_mat, M: fmpq_mat, S: fmpq_mat, tight: list[int]) -> fmpq_mat | None:
    """Return a symmetric D ≠ 0 in the range of S with ⟨a_j z_jᵀ, MD⟩ = 0 for all tight j; None where there is none."""
    basis = _independent_columns(S)
    r, left, right = basis.ncols(), (a * M * basis).tolist(), (z * basis).tolist()
    pairs = [(k, l) for k in range(r) for l in range(k, r)]
    images = [
        [left[j][k] * right[j][l] + (left[j][l] * right[j][k] if k != l else fmpq(0)) for k, l in pairs] for j in tight
    ]
    kernel = _kernel_vector(fmpq_mat(images))
    if kernel is None:
        return None
    T = fmpq_mat(r, r)
    for (k, l), x in zip(pairs, kernel, strict=True):
        T[k, l] = T[l, k] = x
    return basis * T * basis.transpose()


def _independent_columns(S: fmpq_mat) -> fmpq_mat:
    """Return columns of S that form a basis of its range."""
    reduced, rank = S.rref()
    pivots = [next(j for j in range(S.ncols()) if reduced[i, j] != 0) for i in range(rank)]
    return fmpq_mat([[row[j] for j in pivots] for row in S.tolist()])


def _kernel_vector(matrix: fmpq_mat) -> list[fmpq] | None:
    """Return a vector ≠ 0 that the matrix maps to 0; None where there is none."""
    reduced, rank = matrix.rref()
    k = matrix.ncols()
    pivots = [next(j for j in range(k) if reduced[i, j] != 0) for i in range(rank)]
    free = next((j for j in range(k) if j not in pivots), None)
    if free is None:
        return None
    vector = [fmpq(int(j == free)) for j in range(k)]
    for i, j in enumerate(pivots):
        vector[j] = -reduced[i, free]
    return vector


def _margins(a: fmpq_mat, z: fmpq_mat, W: fmpq_mat) -> list[fmpq]:
    """Return ⟨a_j z_jᵀ, W⟩ for every j, exactly."""
    pairs = zip((a * W).tolist(), z.tolist(), strict=True)
    return [sum((x * y for x, y in zip(*pair, strict=True)), fmpq(0)) for pair in pairs]


def _trace(S: fmpq_mat) -> fmpq:
    return sum((S[i, i] for i in range(S.nrows())), fmpq(0))


def _fractions(array: Float64[np.ndarray, "m k"]) -> fmpq_mat:
    """Return for each entry the nearest fraction with a small denominator."""
    near = [Fraction(x).limit_denominator(LARGEST_DENOMINATOR) for x in array.ravel().tolist()]
    m, k = array.shape
    return fmpq_mat(m, k, [fmpq(x.numerator, x.denominator) for x in near])
