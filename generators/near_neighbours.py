"""Tokens that are almost SVM-neighbours, and cases in which they are not."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.margin_excess import margins_beyond_one
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

CLOSE = 2.0**-10
"""Tokens with a margin below 1 + this are moved where they keep float64 from resolving a cone around p_mm."""


def without_near_neighbours(case: Case) -> Case:
    """Turn margins of 1 + 10^−17 … 1 + 10^−3 into about 2; p_mm, its neighbours and α stay as they are.

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
