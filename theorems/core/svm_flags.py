"""Whether what a solution of ATT-SVM says about its neighbours is so: their rank, and whether all can have a dual.

Claims are made or left out by these flags, so they are decided a second time, over the rationals, by code that shares
nothing with :mod:`reference_attention.svm`: rank by elimination; positive duals by checking those that are given; that
a neighbour has none by a direction z with p·z = 0 that no neighbour opposes and this one gains by (Goldman and Tucker:
0 = p·z = Σ λ_j g_j·z, so its λ is 0 in every dual solution).

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM).
"""

from __future__ import annotations

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64, Int64
from scipy.optimize import linprog

from reference_attention.exact import combination, products, rank_of, rational, to_floats
from reference_attention.outer_keys import rational_keys
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin

Pair = tuple[int, int]

GAIN = 1e-7
"""What a row of size one gains from z at least, to be taken for one that gains: only a guess, proven afterwards."""


def wrong_flag(problem: Problem, alpha: Int64[np.ndarray, "n"], svm: MaxMargin) -> str:
    """What is said wrongly, given that p and the neighbours are right; empty if nothing is."""
    pairs: list[Pair] = [(int(i), int(t)) for i, t in np.argwhere(svm.neighbours)]
    keys = rational_keys(problem.exact_keys).tolist()
    rows = [
        [a - b for a, b in zip(keys[i * problem.T + int(alpha[i])], keys[i * problem.T + t], strict=True)]
        for i, t in pairs
    ]
    rank = rank_of(rows)
    if svm.independent != (rank == len(rows)):
        said = "independent" if svm.independent else "dependent"
        return f"the rows of {len(rows)} neighbours have rank {rank}, and are called {said}"
    given = svm.exact_maximal_duals
    if why := _no_such_duals(given, pairs, rows, list(svm.exact.p)):
        return why
    for k, pair in enumerate(pairs):
        if pair not in given and not _gains_without_dual(rows, k, list(svm.exact.p)):
            return f"token {pair[1]} of input {pair[0]} is said to have dual 0 in every solution, and nothing proves it"
    return ""


def _no_such_duals(given: dict[Pair, fmpq], pairs: list[Pair], rows: list[list[fmpq]], p: list[fmpq]) -> str:
    """Why those are no positive duals of p; empty if they are."""
    if not set(given) <= set(pairs) or any(x <= 0 for x in given.values()):
        return "a positive dual is not positive, or not at a neighbour"
    total = combination(rows, [given.get(pair, fmpq(0)) for pair in pairs], len(p))
    return "" if total == p else "the positive duals do not add up to p"


def _gains_without_dual(rows: list[list[fmpq]], k: int, p: list[fmpq]) -> bool:
    """Whether a z was found with p·z = 0, g·z ≥ 0 for every row g and g_k·z > 0: a float guess, made exact."""
    floats, unit = np.array([to_floats(row) for row in rows]), to_floats(p)
    floats, unit = floats / np.abs(floats).max(axis=1, keepdims=True), unit / np.abs(unit).max()
    none = np.zeros(len(rows))
    found = linprog(-floats[k], A_ub=-floats, b_ub=none, A_eq=unit[None], b_eq=[0.0], bounds=(-1, 1), method="highs")
    if found.status != 0:
        return False
    gains = floats @ found.x
    idle = [row for row, gain in zip(rows, gains.tolist(), strict=True) if gain < GAIN]
    z = _projected(found.x, [p, *idle])
    gained = products(rows, z)
    return all(x >= 0 for x in gained) and gained[k] > 0


def _projected(z: Float64[np.ndarray, "d"], across: list[list[fmpq]]) -> list[fmpq]:
    """z, as a rational vector, without its part in the span of some rows, not all zero."""
    exact = [rational(float(x)) for x in z]
    reduced, rank = fmpq_mat(across).rref()
    basis = fmpq_mat(reduced.tolist()[: int(rank)])
    gram = basis * basis.transpose()
    share = gram.solve(basis * fmpq_mat([[x] for x in exact]))
    part = (basis.transpose() * share).tolist()
    return [x - row[0] for x, row in zip(exact, part, strict=True)]
