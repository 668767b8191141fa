"""Weights W, rational and in closed form, that give chosen tokens margins of at least 1.

References: *Transformers as Support Vector Machines*, Theorem 1; derivations and symbols in :mod:`.feasibility`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Int64

from reference_attention.exact import rational, rational_matrix
from reference_attention.query_dataset import QueryDataset

FIRST = 1 - 2.0**-20
"""The share of the computed least eigenvalue (in floats) that is tried first as a lower bound."""


def token_rows(data: QueryDataset, alpha: Int64[np.ndarray, "n"], i: int) -> fmpq_mat:
    """Return the matrix D_i with the rows x_iα − x_it, t ≠ α_i; shape (T − 1, d)."""
    tokens = rational_matrix(data.X[i]).tolist()
    chosen = tokens.pop(int(alpha[i]))
    return fmpq_mat([[a - b for a, b in zip(chosen, other, strict=True)] for other in tokens])


def all_ones(rows: fmpq_mat) -> fmpq_mat:
    """Return the shortest vector x, as a column, with rows·x = 1 in every entry; the rows must be independent."""
    ones = fmpq_mat(rows.nrows(), 1, [1] * rows.nrows())
    return rows.transpose() * (rows * rows.transpose()).solve(ones)


def by_pseudoinverses(data: QueryDataset, alpha: Int64[np.ndarray, "n"]) -> tuple[fmpq_mat, list[fmpq]]:
    """Return W = [w_1 … w_n] Z⁺, shape (d, e), and the ‖w_i‖², where w_i = D_i⁺1 and Z has the columns z_i."""
    w = [all_ones(token_rows(data, alpha, i)) for i in range(len(data.Y))]
    Z = rational_matrix(data.queries)
    columns = fmpq_mat([column.entries() for column in w]).transpose()
    return columns * (Z * Z.transpose()).solve(Z), [squared_norm(column) for column in w]


def by_labels(data: QueryDataset, q: list[fmpq], gap: fmpq) -> fmpq_mat:
    """Return W = v qᵀ/gap, shape (d, e)."""
    return rational_matrix(data.v[:, None]) * fmpq_mat([q]) * (1 / gap)


def smallest_gap(data: QueryDataset) -> fmpq:
    """Return the exact least gap between the best and the second best score of an input; 0 if two tokens are best."""
    scores = (rational_matrix(data.X.reshape(-1, data.X.shape[2])) * rational_matrix(data.v[:, None])).entries()
    T, labels = data.X.shape[1], data.Y.tolist()
    signed = [[rational(y) * x for x in scores[i * T : (i + 1) * T]] for i, y in enumerate(labels)]
    return min(b - a for a, b in (list(pairwise(sorted(row)))[-1] for row in signed))


def squared_norm(matrix: fmpq_mat) -> fmpq:
    """Return the sum of the squares of the entries."""
    return sum((x * x for x in matrix.entries()), fmpq(0))


def eigenvalue_bound(rows: fmpq_mat) -> fmpq:
    """Return a rational lower bound s > 0 of σ_min² of independent rows, near σ_min².

    A value computed in floats, or half of it, is accepted if all leading minors of rows·rowsᵀ − s I are positive
    (Sylvester); otherwise the bound is 1/tr((rows·rowsᵀ)⁻¹), which always holds.
    """
    gram = rows * rows.transpose()
    m = gram.nrows()
    identity = fmpq_mat([[fmpq(a == b) for a in range(m)] for b in range(m)])
    proposed = np.linalg.eigvalsh(np.array([[float(x) for x in row] for row in gram.tolist()]))[0]
    for share in (FIRST, 0.5):
        s = rational(float(share * proposed))
        if s > 0 and _positive_definite((gram - identity * s).tolist()):
            return s
    inverse = gram.inv()
    return 1 / sum((inverse[k, k] for k in range(m)), fmpq(0))


def _positive_definite(matrix: list[list[fmpq]]) -> bool:
    return all(fmpq_mat([row[:k] for row in matrix[:k]]).det() > 0 for k in range(1, len(matrix) + 1))
