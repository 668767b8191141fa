"""Cases for statements about locally optimal α whose cones float64 can resolve."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.token_selection.local_paths.cone_points import is_followable, is_resolvable
from theorems.token_selection.local_paths.invariant_cone import invariant_cone
from theorems.token_selection.local_paths.local_constants import local_constants, margins_beyond_one

CLOSE = 2.0**-10
"""Tokens with a margin below 1 + this are moved where they keep float64 from resolving the cone."""


def resolves_cone(case: Case) -> bool:
    """Whether float64 resolves the cone in which Lemma 7 speaks."""
    normal = case.normalise()
    solution = max_margin(normal.problem.exact_keys, normal.chosen_tokens)
    if isinstance(solution, Infeasible):
        return False
    constants = local_constants(normal.problem, solution)
    return constants is not None and is_resolvable(constants, constants.base_rho)


def followable(case: Case) -> bool:
    """Whether float64 can follow gradient flow in the invariant cone of η = 1/L_p."""
    normal = case.normalise()
    solution = max_margin(normal.problem.exact_keys, normal.chosen_tokens)
    if isinstance(solution, Infeasible):
        return False
    constants = local_constants(normal.problem, solution)
    if constants is None or not is_resolvable(constants, constants.base_rho):
        return False
    cone = invariant_cone(constants, -normal.problem.log_smoothness)
    return cone is not None and is_followable(constants, cone.height)


def without_near_neighbours(case: Case) -> Case:
    """The case with margins of 1 + 10^−17 … 1 + 10^−3 turned into about 2; p_mm, its neighbours and α stay as they are.

    A token that is almost a neighbour leaves a cone that begins where float64 cannot resolve a logit any more. Its
    constraint is not active, and doubling k_α − k_t keeps it so.
    """
    solution = max_margin(case.problem.exact_keys, case.chosen_tokens)
    if isinstance(solution, Infeasible):
        return case
    near = (margins_beyond_one(solution) < CLOSE) & ~solution.neighbours
    keys = _push_away(case.problem.keys, solution, near)
    return case.replace(problem=Problem(keys, case.problem.scores, case.problem.loss), alpha=solution.alpha)


def _push_away(keys: Float64[np.ndarray, "n T d"], solution: MaxMargin, near: object) -> Float64[np.ndarray, "n T d"]:
    chosen = np.take_along_axis(keys, solution.alpha[:, None, None], axis=1)
    return np.where(np.asarray(near)[:, :, None], chosen - 2 * (chosen - keys), keys)
