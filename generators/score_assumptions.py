"""Predicates of assumptions on the loss and the scores; scores are compared as floats, hence exactly.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumptions A and B, Definition of O_i in Appendix D.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool

from generators.case import Case
from generators.finding import Finding, number
from reference_attention.ill_behaved_losses import IllBehavedLoss
from reference_attention.losses import LOSSES


def well_behaved_loss(case: Case) -> Finding:
    """Decide Assumption A on the interval of scores: ℓ' < 0, |ℓ'| ≤ M1, and ℓ' is Lipschitz with constant M0.

    Assumption A is proven for the losses of this package, and refuted for the losses of
    :mod:`reference_attention.ill_behaved_losses` by a score at which it fails. For any other loss, the constants M0 and
    M1 that the loss states are checked on a grid, which can refute Assumption A but never establish it.
    """
    loss = case.problem.loss
    low, high = case.problem.score_range
    log_m1, log_m0 = loss.log_bound(low, high), loss.log_lipschitz(low, high)
    if type(loss) is type(LOSSES.get(loss.name)):
        return Finding(True, f"{loss.name}: log M1 = {log_m1:.6g}, log M0 = {log_m0:.6g} on [{low:g}, {high:g}]")
    if isinstance(loss, IllBehavedLoss):
        defect = loss.defect(low, high)
        return Finding(not defect, f"{loss.name}: {defect or f'no defect on [{low:g}, {high:g}]'}")
    grid = np.linspace(low, high, 257)
    slope = np.asarray(loss.derivative(grid), dtype=np.float64)
    if not (slope < 0).all():
        at = int(np.argmin(slope < 0))
        return Finding(False, f"{loss.name}: ℓ'({number(grid[at])}) = {slope[at]:g} is not negative")
    slack = 1 + 64 * np.finfo(np.float64).eps
    if np.abs(slope).max() > math.exp(log_m1) * slack:
        at = int(np.argmax(np.abs(slope)))
        return Finding(
            False, f"{loss.name}: |ℓ'({number(grid[at])})| = {-slope[at]:g} exceeds M1 = {math.exp(log_m1):g}"
        )
    rise = np.abs(np.diff(slope))
    rounding = 64 * np.finfo(np.float64).eps * np.abs(slope).max()
    if (rise > math.exp(log_m0) * np.diff(grid) + rounding).any():
        at = int(np.argmax(rise))
        return Finding(False, f"{loss.name}: ℓ' changes by {rise[at]:g} near {grid[at]:g}, more than M0 allows")
    return Finding(None, f"{loss.name}: M0 and M1 hold on a grid of {grid.size} points, which is no proof")


def strict_optimum(case: Case) -> Finding:
    """Check that one token of each input scores strictly highest: γ_it < γ_i,opt for every t ≠ opt_i."""
    scores = case.problem.scores
    for i, row in enumerate(scores):
        best = np.flatnonzero(row == row.max())
        if best.size > 1:
            return Finding(False, f"input {i}: tokens {best[0]} and {best[1]} both score {number(row.max())}")
    ranked = np.sort(scores, axis=1)
    gaps = ranked[:, -1] - ranked[:, -2]
    i = int(np.argmin(gaps))
    return Finding(True, f"smallest gap to the optimal token is {number(gaps[i])}, in input {i}")


def equal_non_optimal_scores(case: Case) -> Finding:
    """Check Assumption B: in every input all non-optimal scores are equal, and strictly below the optimal one."""
    strict = strict_optimum(case)
    if not strict.holds:
        return strict
    for i, row in enumerate(case.problem.scores):
        others = np.delete(np.arange(row.size), int(np.argmax(row)))
        differs = others[row[others] != row[others[0]]]
        if differs.size:
            a, b = int(others[0]), int(differs[0])
            scored = f"{number(row[a], row[b])} and {number(row[b], row[a])}"
            return Finding(False, f"input {i}: non-optimal tokens {a} and {b} score {scored}")
    return Finding(True, f"{strict.evidence}; all other scores are equal within each input")


def distinct_scores(case: Case) -> Finding:
    """Check that within each input no two tokens have the same score."""
    for i, row in enumerate(case.problem.scores):
        order = np.argsort(row, kind="stable")
        same = np.flatnonzero(np.diff(row[order]) == 0)
        if same.size:
            a, b = sorted(int(t) for t in order[same[0] : same[0] + 2])
            return Finding(False, f"input {i}: tokens {a} and {b} both score {number(row[a])}")
    smallest = float(np.diff(np.sort(case.problem.scores, axis=1), axis=1).min())
    return Finding(True, f"scores of an input differ by at least {number(smallest)}")


def single_input(case: Case) -> Finding:
    """Check that there is one input, n = 1."""
    return Finding(case.problem.n == 1, f"n = {case.problem.n}")


def optimal_sets(case: Case) -> Bool[np.ndarray, "n T"]:
    """Return the mask (n, T) of the optimal sets O_i = argmax_t γ_it of Appendix D."""
    scores = case.problem.scores
    return np.asarray(scores == scores.max(axis=1, keepdims=True))
