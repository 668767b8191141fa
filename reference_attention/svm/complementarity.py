"""A dual solution that is positive on as many constraints as possible, over the rationals.

The dual solutions of min ‖p‖ subject to g_j·p ≥ h_j are the λ ≥ 0 on the tight rows (g_j·p = h_j) with Σ λ_j g_j = p.
They form a convex set, so one of them is positive wherever any of them is. Let P be the rows where a given dual
solution λ is positive, and Z other tight rows. Consider the vectors z with g_k·z ≥ 0 for all k ∈ P ∪ Z, −Σ_P g_k·z ≥ 0
and Σ_Z g_k·z ≥ 1.

- If there is such a z, the g_k·z vanish on P, so p·z = Σ λ_k g_k·z = 0. Every dual solution λ' on P ∪ Z has 0 = p·z = Σ
  λ'_j g_j·z, a sum of non-negative terms, so λ'_k = 0 wherever g_k·z > 0, which is so for some k ∈ Z. These rows are
  removed from Z, and the step is repeated.
- If there is none, Farkas gives u, w ≥ 0 with Σ u_k g_k − w Σ_P g_k + Σ_Z g_k = 0. Then λ + ε (u − w 1_P + 1_Z) is a
  dual solution, at least ε on Z, and positive on P for small ε > 0 (1_P is 1 on P and 0 elsewhere).

Source: A. J. Goldman and A. W. Tucker, *Theory of linear programming* (1956).
"""

from __future__ import annotations

import numpy as np
from flint import fmpq, fmpz, fmpz_mat

from reference_attention.svm.least_norm import IntegerRows, Outcome, Rows, least_norm


def maximal_duals(rows: Rows, outcome: Outcome) -> dict[int, fmpq]:
    """Return a dual solution, by row, that is positive wherever any dual solution is.

    The duals are those of the rows scaled to integers, see :meth:`reference_attention.svm.least_norm.Rows.integers`.

    Args:
        rows: the constraints.
        outcome: the least-norm point of these constraints, which must be feasible.
    """
    duals = {j: fmpq(x, outcome.exact.rho) for j, x in zip(outcome.support, outcome.exact.u, strict=True)}
    undecided = [j for j in np.flatnonzero(outcome.tight).tolist() if j not in duals]
    while undecided:
        change, idle = _change(rows, list(duals), undecided)
        if change:
            # Half of the longest step that keeps all duals ≥ 0 keeps those positive that are positive now.
            step = min((duals[j] / -c for j, c in change.items() if c < 0), default=fmpq(2)) / 2
            return {j: duals.get(j, fmpq(0)) + step * c for j, c in sorted(change.items())}
        undecided = [j for j in undecided if j not in idle]
    return duals


def _change(rows: Rows, positive: list[int], undecided: list[int]) -> tuple[dict[int, fmpq], set[int]]:
    """Return a direction of change for the duals, by row, that makes those of all ``undecided`` rows positive.

    The second result, a set, is then empty. If there is no such direction, return an empty direction, and the set of
    the ``undecided`` rows found to have the dual 0 in every dual solution.
    """
    tight = [*positive, *undecided]
    exact = rows.integers(tight)
    matrix = exact.tolist()
    against = [-sum(column, fmpz(0)) for column in zip(*matrix[: len(positive)], strict=True)]
    towards = [sum(column, fmpz(0)) for column in zip(*matrix[len(positive) :], strict=True)]
    bounds = np.zeros(len(tight) + 2, dtype=np.int64)
    bounds[-1] = 1
    outcome = least_norm(IntegerRows(fmpz_mat([*matrix, against, towards]), rows.shift), bounds)
    if outcome.feasible:
        gains = (exact * fmpz_mat(exact.ncols(), 1, outcome.exact.point)).entries()
        return {}, {j for j, gain in zip(tight, gains, strict=True) if gain > 0}
    u = {k: fmpq(x, outcome.exact.over) for k, x in zip(outcome.support, outcome.exact.u, strict=True)}
    w = u.get(len(tight), fmpq(0))
    shares = [u.get(k, fmpq(0)) + (1 if k >= len(positive) else -w) for k in range(len(tight))]
    return dict(zip(tight, shares, strict=True)), set()
