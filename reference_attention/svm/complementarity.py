"""Is there a dual solution that is positive on every active constraint? Decided over the rationals.

Let P be the support of the dual solution λ at hand, Z the other active constraints. Consider the z with
g_k·z ≥ 0 for all k ∈ P ∪ Z, −Σ_P g_k·z ≥ 0 and Σ_Z g_k·z ≥ 1.

- If there is one, the g_k·z vanish on P, so p·z = Σ λ_k g_k·z = 0, and g_k·z > 0 for some k ∈ Z. Every dual
  solution λ' has 0 = p·z = Σ λ'_j g_j·z, a sum of non-negative terms, so λ'_k = 0: there is no dual solution
  that is positive throughout.
- If there is none, Farkas gives u, w ≥ 0 with Σ u_k g_k − w Σ_P g_k + Σ_Z g_k = 0. Then
  λ + ε (u − w 1_P + 1_Z) is a dual solution, at least ε on Z, and positive on P for small ε.

Source: A. J. Goldman and A. W. Tucker, *Theory of linear programming* (1956).
"""

from __future__ import annotations

import numpy as np
from flint import fmpq, fmpz, fmpz_mat

from reference_attention.svm.least_norm import IntegerRows, Outcome, Rows, least_norm


def positive_duals(rows: Rows, outcome: Outcome) -> dict[int, fmpq] | None:
    """λ > 0 at exactly the tight rows, in units of the integer rows; None when there is provably none.

    Args:
        rows: the constraints.
        outcome: their feasible least-norm point.
    """
    support = outcome.support
    duals = {j: fmpq(x, outcome.exact.rho) for j, x in zip(support, outcome.exact.u, strict=True)}
    rest = [j for j in np.flatnonzero(outcome.tight).tolist() if j not in duals]
    if not rest:
        return duals
    tight = [*support, *rest]
    matrix = rows.integers(tight).tolist()
    used, unused = matrix[: len(support)], matrix[len(support) :]
    against = [-sum(column, fmpz(0)) for column in zip(*used, strict=True)]
    towards = [sum(column, fmpz(0)) for column in zip(*unused, strict=True)]
    bounds = np.zeros(len(tight) + 2, dtype=np.int64)
    bounds[-1] = 1
    found = least_norm(IntegerRows(fmpz_mat([*matrix, against, towards]), rows.shift), bounds)
    if found.feasible:
        return None
    u = {k: fmpq(x, found.exact.over) for k, x in zip(found.support, found.exact.u, strict=True)}
    w = u.get(len(tight), fmpq(0))
    change = [u.get(k, fmpq(0)) + (1 if k >= len(support) else -w) for k in range(len(tight))]
    # Half the way to the boundary keeps the duals on P positive.
    step = min((duals[j] / -c for j, c in zip(support, change, strict=False) if c < 0), default=fmpq(2)) / 2
    return {j: duals.get(j, fmpq(0)) + step * c for j, c in zip(tight, change, strict=True)}
