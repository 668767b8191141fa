"""Cases for statements about locally optimal α whose cones float64 can resolve."""

from __future__ import annotations

import numpy as np

from attention.max_margin import Infeasible, max_margin
from attention.problem import Problem
from generators.case import Case
from theorems.cone_points import is_resolvable
from theorems.invariant_cone import invariant_cone
from theorems.local_constants import local_constants, margins_beyond_one

CLOSE = 2.0**-10
"""Harmful tokens with a margin below 1 + this are made good where they keep float64 from resolving the cone."""


def away_from_harm(case: Case) -> Case:
    """The case itself if float64 resolves its invariant cone; otherwise with lower scores for nearly neighbours.

    A token that does not score below α with margin 1 + 10^−17 leaves a cone that begins at ‖p‖ = 10^17. Its score is
    set to the smallest of its input, less than α's, which keeps the geometry and α locally optimal. A problem whose
    invariant cone begins too far out for other reasons is left as it is.
    """
    normal = case.normalised()
    solution = max_margin(normal.problem.keys, normal.chosen)
    if isinstance(solution, Infeasible) or resolved(normal.problem, solution):
        return case
    problem, alpha = case.problem, case.chosen
    gaps = problem.gaps(alpha)
    others = np.arange(problem.T) != alpha[:, None]
    near = others & (gaps <= 0) & (margins_beyond_one(solution) < CLOSE)
    chosen = problem.scores[np.arange(problem.n), alpha][:, None]
    scores = np.where(near, np.minimum(problem.scores.min(axis=1, keepdims=True), chosen - 1.0), problem.scores)
    return case.but(problem=Problem(problem.keys, scores, problem.loss), alpha=alpha)


def resolved(problem: Problem, solution: object) -> bool:
    """Whether float64 resolves the invariant cone of η = 1/L_p."""
    constants = local_constants(problem, solution)  # type: ignore[arg-type]
    if constants is None or not is_resolvable(constants, constants.base_rho):
        return False
    cone = invariant_cone(constants, -problem.log_smoothness)
    return cone is not None and is_resolvable(constants, cone.height)
