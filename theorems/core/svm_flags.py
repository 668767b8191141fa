"""Check of two facts in a solution of ATT-SVM: the rank of the neighbours' rows, and which duals can be positive.

These facts decide which claims are made, so they are computed a second time, over the rationals. g are the rows k_iα −
k_it of the neighbours, p = Σ λ_j g_j with duals λ. The rank comes from elimination, and the positive duals that the
solution gives are checked. It remains to prove that the other neighbours have dual 0 in every solution. A direction z
proves this, if p·z = 0, g·z ≥ 0 for every row g, and g·z > 0 for the rows of these neighbours: since 0 = p·z = Σ λ_j
g_j·z is a sum of non-negative terms, λ_j = 0 wherever g_j·z > 0. By Goldman and Tucker a single z exists for all such
rows. How z is computed does not matter, because z is checked. Floats do not suffice: if a token is one rounding away
from being a neighbour, g·z is that small, too.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM).
"""

from __future__ import annotations

import numpy as np
from flint import fmpq, fmpq_mat, fmpz_mat
from jaxtyping import Int64

from reference_attention.exact import combination, products, rank_of
from reference_attention.problem import Problem
from reference_attention.svm.least_norm import IntegerRows, least_norm
from reference_attention.svm.max_margin import MaxMargin

Pair = tuple[int, int]


def wrong_flag(problem: Problem, keys: fmpq_mat, alpha: Int64[np.ndarray, "n"], svm: MaxMargin) -> str:
    """Return a message about the first wrong fact, given that p and the neighbours are right; empty if none is wrong.

    Args:
        problem: keys, scores, loss.
        keys: the keys over the rationals, (n T, d).
        alpha: the chosen tokens, (n,).
        svm: the solution with ``independent``, ``exact_maximal_duals``, ``dual_support`` and
            ``strictly_complementary``.
    """
    pairs: list[Pair] = [(int(i), int(t)) for i, t in np.argwhere(svm.neighbours)]
    differences = fmpz_mat(len(pairs), problem.n * problem.T)
    for j, (i, t) in enumerate(pairs):
        differences[j, i * problem.T + int(alpha[i])] = 1
        differences[j, i * problem.T + t] = -1
    rows = (differences * keys).tolist() if pairs else []
    rank = rank_of(rows)
    if svm.independent != (rank == len(rows)):
        word = "independent" if svm.independent else "dependent"
        return f"the rows of {len(rows)} neighbours have rank {rank}, but are called {word}"
    duals = svm.exact_maximal_duals
    if why := _no_such_duals(duals, pairs, rows, list(svm.exact.p)):
        return why
    without = [pair not in duals for pair in pairs]
    if svm.strictly_complementary == any(without) or {(int(i), int(t)) for i, t in np.argwhere(svm.dual_support)} != {
        *duals
    }:
        return f"{len(duals)} of {len(pairs)} neighbours have a positive dual, but the flags say otherwise"
    if any(without) and not _proves(_gaining(rows, without), rows, without, list(svm.exact.p)):
        i, t = pairs[without.index(True)]
        return f"token {t} of input {i} is said to have dual 0 in every solution, but nothing proves it"
    return ""


def _no_such_duals(duals: dict[Pair, fmpq], pairs: list[Pair], rows: list[list[fmpq]], p: list[fmpq]) -> str:
    """Return why ``duals`` are not positive, or why rows times ``duals`` do not add up to p; empty if all is right."""
    if not set(duals) <= set(pairs) or any(x <= 0 for x in duals.values()):
        return "a dual stated as positive is not positive, or not that of a neighbour"
    total = combination(rows, [duals.get(pair, fmpq(0)) for pair in pairs], len(p))
    return "" if total == p else "the rows times their positive duals do not add up to p"


def _proves(z: list[fmpq], rows: list[list[fmpq]], without: list[bool], p: list[fmpq]) -> bool:
    """Return whether p·z = 0, g·z ≥ 0 for every row g, and g·z > 0 for the rows that ``without`` marks (dual 0)."""
    gains = products(rows, z)
    return products([p], z) == [0] and all(x > 0 if idle else x >= 0 for x, idle in zip(gains, without, strict=True))


def _gaining(rows: list[list[fmpq]], without: list[bool]) -> list[fmpq]:
    """Return z with g·z ≥ 1 for the rows g in ``without``, and g·z ≥ 0, Σ g·z ≤ 0 for the other rows; 0 if none exists.

    ``without`` is the mask of rows that are stated to have dual 0 in every solution.
    """
    with_dual = [row for row, idle in zip(rows, without, strict=True) if not idle]
    against = [-sum(column, fmpq(0)) for column in zip(*with_dual, strict=True)] or [fmpq(0)] * len(rows[0])
    whole, _ = fmpq_mat([*rows, against]).numer_denom()
    outcome = least_norm(_integer_rows(whole), np.array([*without, False], dtype=np.int64))
    return [fmpq(x) for x in outcome.exact.point] if outcome.feasible else [fmpq(0)] * len(rows[0])


def _integer_rows(whole: fmpz_mat) -> IntegerRows:
    return IntegerRows(whole, max(int(abs(x)).bit_length() for x in whole.entries()))
