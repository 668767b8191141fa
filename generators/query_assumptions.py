"""Assumptions on tokens and queries, where W is trained: decided over the rationals.

References: *Transformers as Support Vector Machines*, Assumption B, Theorems 1, 3 and 4.
"""

from __future__ import annotations

import numpy as np
from flint import fmpq_mat

from generators.case import Case
from generators.finding import Finding, number
from generators.margin_assumptions import checked_margins, difference_rows
from reference_attention.exact import rational_matrix

NO_QUERIES = "the case has no queries; give tokens X, queries, labels Y and head v"


def queries_given(case: Case) -> Finding:
    """Each input has tokens and a query."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    (n, T, d), e = case.queried.X.shape, case.queried.queries.shape[1]
    return Finding(True, f"{n} queries of dimension {e}, {T} tokens of dimension {d} each")


def independent_rows(case: Case) -> Finding:
    """The rows (x_iα − x_it) z_iᵀ, all i and t ≠ α_i, are linearly independent; for one α means for every α."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    n, T, d = case.problem.keys.shape
    count = n * (T - 1)
    if count > d:
        return Finding(False, f"{count} rows of dimension {d}")
    rank = int(fmpq_mat(list(difference_rows(case.problem.exact_keys, case.chosen).values())).rank())
    return Finding(rank == count, f"the {count} rows (x_iα − x_it) z_iᵀ have rank {rank}")


def independent_tokens_and_queries(case: Case) -> Finding:
    """Within each input the T − 1 differences of tokens are independent, and the queries are: d ≥ max(T − 1, n)."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    X, queries = case.queried.X, case.queried.queries
    rank = int(rational_matrix(queries).rank())
    if rank < len(queries):
        return Finding(False, f"the {len(queries)} queries have rank {rank}")
    for i, tokens in enumerate(X):
        exact = rational_matrix(tokens).tolist()
        rows = [[a - b for a, b in zip(row, exact[0], strict=True)] for row in exact[1:]]
        rank = int(fmpq_mat(rows).rank())
        if rank < len(rows):
            return Finding(False, f"the {len(rows)} differences of tokens of input {i} have rank {rank}")
    return Finding(True, f"queries have rank {len(queries)}, differences of tokens rank {X.shape[1] - 1} in each input")


def label_separating_queries(case: Case) -> Finding:
    """Y_i qᵀz_i ≥ 1 for all i and some q: queries separate the labels; exact."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    signed = case.queried.Y[:, None] * case.queried.queries
    keys = np.stack([signed, np.zeros_like(signed)], axis=1)
    checked = checked_margins(keys, np.zeros(len(keys), dtype=np.int64))
    if not checked.proven:
        return Finding(None, checked.evidence)
    return Finding(checked.p is not None, f"of the queries and labels: {checked.evidence}", checked.exact)


def orthogonal_queries(case: Case) -> Finding:
    """z_i·z_j = 0 for i ≠ j, exactly."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    exact = rational_matrix(case.queried.queries)
    gram = (exact * exact.transpose()).tolist()
    for i, row in enumerate(gram):
        for j in range(i):
            if row[j] != 0:
                return Finding(False, f"z_{i}·z_{j} = {number(float(row[j]))}")
    return Finding(True, f"{len(gram)} queries, each orthogonal to the others")
