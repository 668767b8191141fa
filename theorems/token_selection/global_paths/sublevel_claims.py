"""The effective claims of Theorem 1: every point of a sublevel set has its margin and its correlation.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; derivation in
:mod:`.theorem_1_regularization_path`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.rounding.attention_at import Numbers
from theorems.rounding.bounded import exact, rounded, value_of
from theorems.rounding.excess import log_excess_of
from theorems.token_selection.global_paths.path_constants import Constraints, bend, log_excess
from theorems.token_selection.global_paths.path_offset import Reduced
from theorems.token_selection.global_paths.sublevel_hunt import hunt

SUBLEVEL_RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""RΘ/κ of the sublevel sets."""
HUNT_BUDGET = 150_000
"""About how many floats one batch of hunted points may occupy."""


def sublevel_claims(
    case: Case,
    under_test: Implementation,
    constraints: Constraints,
    basis: Float64[np.ndarray, "d e"],
    svm: MaxMargin,
    kappa: Numbers,
) -> Iterator[Claim]:
    """Hunt for points of sublevel sets that violate the bounds on margin and correlation.

    A point p of the ball whose risk is larger than at R p̄_mm by a factor e^o belongs to the sublevel set of RΘ − o in
    place of RΘ. So the bounds, with RΘ − o in them, are for points whose risk is not surely smaller, too.

    Args:
        constraints, basis: rows of the SVM in units of ‖p_mm‖, and the complement of p̄_mm.
        svm: p_mm.
        kappa: κ.
    """
    problem, opt, T = case.problem, case.problem.optimal, case.problem.T
    rhos = float(value_of(kappa)) * np.array(SUBLEVEL_RADII)
    ray = rhos[:, None] * svm.direction
    edge = log_excess(under_test, problem, svm.norm * ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        excess = log_excess(under_test, problem, svm.norm * points)
        short = np.linalg.norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (excess <= edge[:, None]))

    flat = np.zeros(problem.d - 1)
    centres = np.array([Reduced.at(constraints, basis, rho).newton(flat, 60)[0] for rho in rhos])
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * problem.keys.size), 6, 32))
    found = hunt(
        inside,
        svm.direction,
        basis,
        constraints.rows,
        constraints.neighbours,
        rhos,
        centres,
        size=size,
        rounds=2,
        rng=case.rng(),
    )
    # R p̄_mm itself belongs to its sublevel set.
    found.append((ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_)))
    p = exact(svm.norm * np.concatenate([batch[good] for batch, good in found]))
    of_radius = np.concatenate([np.nonzero(good)[0] for _, good in found])

    p_mm, rho = rounded(svm.p), rhos[of_radius]
    log_edge = log_excess_of(under_test, problem, rhos[:, None] * p_mm, "sublevel-margin")[of_radius]
    over = np.maximum(log_excess_of(under_test, problem, p, "sublevel-margin") - log_edge, 0.0)
    rows = key_rows(problem, opt)[constraints.others]
    length, along = norm(p, axis=1) / norm(p_mm), p @ p_mm / (p_mm @ p_mm)
    least, what = rho - over - kappa, {"points": "point of a sublevel set"}
    yield at_least("sublevel-margin", Form.EFFECTIVE, np.min(p @ rows.T, axis=1), least, **what)
    yield at_least("sublevel-correlation", Form.EFFECTIVE, along / length, least / np.maximum(length, rho), **what)
    others = (T - 1) * np.exp(-np.maximum(least, 0.0))
    bent = bend(problem.loss, problem.scores.max(axis=1), problem.gaps().max(axis=1))
    lost = np.log1p(others) + bent * np.minimum(others, 1.0)
    bound = dual_value(problem, svm) - lost - (log_edge + over + np.log(exact(problem.n)))
    yield at_least("sublevel-correlation-from-duals", Form.EFFECTIVE, along, bound, **what)


def dual_value(problem: Problem, svm: MaxMargin) -> Numbers:
    """D(w) = Σ w_j log(c_j / w_j) ≤ log Σ c_j e^{−g_j·y} for every y ⊥ p_mm (Jensen, Σ w_j g_j ∥ p_mm)."""
    used, best = svm.duals > 0, exact(problem.scores.max(axis=1))[:, None]
    duals: Any = rounded(svm.duals[used])
    w = duals / np.sum(duals)
    log_costs = problem.loss.log_slope(best) + np.log(best - problem.scores)
    return np.sum(w * (log_costs[used] - np.log(w)))
