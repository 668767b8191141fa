"""Predicates of assumptions on tokens x_it and queries z_i for training W, decided over the rationals.

References: *Transformers as Support Vector Machines*, Assumption B, Theorems 1, 3 and 4.
"""

from __future__ import annotations

import math

import numpy as np
from flint import fmpq, fmpq_mat

from generators.case import Case
from generators.finding import Finding, number
from generators.margin_assumptions import checked_margins, difference_rows, dot
from reference_attention.exact import rational_matrix, to_float
from reference_attention.floats import EPS
from reference_attention.loss import Loss
from reference_attention.outer_keys import rational_keys

NO_QUERIES = "the case has no queries; give tokens X, queries, labels Y and head v"


def queries_given(case: Case) -> Finding:
    """Check that each input has tokens and a query."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    (n, T, d), e = case.queried.X.shape, case.queried.queries.shape[1]
    return Finding(True, f"{n} queries of dimension {e}, {T} tokens of dimension {d} each")


def independent_rows(case: Case) -> Finding:
    """Check that the rows (x_iα − x_it) z_iᵀ, for all tokens t ≠ α_i and queries z_i, are linearly independent.

    Whether the rows are independent does not depend on α.
    """
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    n, T, d = case.problem.keys.shape
    count = n * (T - 1)
    if count > d:
        return Finding(False, f"{count} rows of dimension {d}")
    rank = int(fmpq_mat(list(difference_rows(case.problem.exact_keys, case.chosen_tokens).values())).rank())
    return Finding(rank == count, f"the {count} rows (x_iα − x_it) z_iᵀ have rank {rank}")


def independent_tokens_and_queries(case: Case) -> Finding:
    """Check that queries are linearly independent, and that so are T − 1 differences of tokens in each input.

    For queries and tokens of dimension d this requires d ≥ max(T − 1, n).
    """
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
    """Check exactly that the queries z_i separate the labels: some q has Y_i qᵀz_i ≥ 1 for all i."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    signed = case.queried.Y[:, None] * case.queried.queries
    keys = np.stack([signed, np.zeros_like(signed)], axis=1)
    checked = checked_margins(keys, np.zeros(len(keys), dtype=np.int64))
    if not checked.proven:
        return Finding(None, checked.evidence)
    return Finding(checked.feasible, f"the SVM of queries and labels: {checked.evidence}", checked.exact)


def orthogonal_queries(case: Case) -> Finding:
    """Check exactly that the queries z_i are orthogonal: z_i·z_j = 0 for i ≠ j."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    exact = rational_matrix(case.queried.queries)
    gram = (exact * exact.transpose()).tolist()
    for i, row in enumerate(gram):
        for j in range(i):
            if row[j] != 0:
                return Finding(False, f"z_{i}·z_{j} = {number(float(row[j]))}")
    return Finding(True, f"{len(gram)} queries, each orthogonal to the others")


def first_step_separates(case: Case) -> Finding:
    """Check Assumption B of T-SVM: all margins (x_i,opt − x_it)ᵀ(−∇L(0)) z_i of the first gradient step are positive.

    The margin of token t of input i, with the query z_i, is Σ_j |ℓ'(γ̄_j)| M_itj with rational numbers M_itj, where
    γ̄_j is the mean score of input j. The sign of a margin is decided exactly if all M_itj have the same sign or ℓ' is
    constant. Otherwise the sign is decided if the margin exceeds its rounding error.
    """
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    problem = case.problem
    (n, T), loss = problem.scores.shape, problem.loss
    keys, scores = rational_keys(problem.exact_keys).tolist(), rational_matrix(problem.scores).tolist()
    means = [sum(row, fmpq(0)) / T for row in scores]
    pulls = []
    for j in range(n):
        shares = [(score - means[j]) / (n * T) for score in scores[j]]
        columns = zip(*keys[j * T : (j + 1) * T], strict=True)
        pulls.append([dot(shares, list(column)) for column in columns])
    constant = loss.log_lipschitz(*problem.score_range) == -math.inf
    slopes = np.ones((n, 2)) if constant else np.array([_slope_between(loss, to_float(mean)) for mean in means])
    unit = slopes.max()
    low, high = np.exp(np.minimum(slopes - unit, 0.0)).T if not constant else slopes.T
    least, doubtful = math.inf, ""
    for (i, t), row in difference_rows(problem.exact_keys, problem.optimal).items():
        terms = [dot(row, pull) for pull in pulls]
        parts = np.array([to_float(term) for term in terms])
        middle = float(parts @ (low + high) / 2)
        margin = f"token {t} of input {i} has margin {_format_scaled(middle, 0.0 if constant else unit)}"
        least = min(least, middle)
        same = [sum(terms, fmpq(0))] if constant else terms
        if all(term <= 0 for term in same):
            return Finding(False, margin)
        if all(term >= 0 for term in same):
            continue
        rounding = 4 * (n + 2) * EPS * float(np.abs(parts) @ high)
        lowest = float(np.sum(np.where(parts > 0, parts * low, parts * high)))
        highest = float(np.sum(np.where(parts > 0, parts * high, parts * low)))
        if highest <= -rounding:
            return Finding(False, margin)
        if lowest <= rounding:
            doubtful = f"{margin}, to a rounding of {highest - lowest + rounding:.3g}"
    if doubtful:
        return Finding(None, doubtful)
    return Finding(True, f"the least margin of −∇L(0) is {_format_scaled(least, 0.0 if constant else unit)}")


def _format_scaled(value: float, log_unit: float) -> str:
    """Format value·e^log_unit, which may be outside the range of float64, as slopes of the exponential loss may be."""
    return number(value * math.exp(log_unit)) if abs(log_unit) < 300 else f"{number(value)}·e^{number(log_unit)}"


def _slope_between(loss: Loss, mean: float) -> tuple[float, float]:
    """Return a lower and an upper bound of log|ℓ'| at any number that rounds to ``mean``."""
    ends = math.nextafter(mean, -math.inf), math.nextafter(mean, math.inf)
    low, high = loss.log_floor(*ends), loss.log_bound(*ends)
    return low - 8 * EPS * (1 + abs(low)), high + 8 * EPS * (1 + abs(high))
