"""Removal of near ties: tokens that are almost SVM-neighbours, with margins just above 1, are moved away."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.margin_excess import margins_beyond_one
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

CLOSE = 2.0**-10
"""Tokens of margin between 1 and 1 + CLOSE are moved, because float64 would not resolve the cone around p_mm."""


def without_near_neighbours(case: Case) -> Case:
    """Change margins just above 1 (below 1 + :data:`CLOSE`) to about 2; p_mm, SVM-neighbours and α do not change.

    With a token that is almost an SVM-neighbour, the cone of Theorem 3 begins at norms at which float64 does not
    resolve logits. The token's constraint is inactive, and remains inactive if k_α − k_t is doubled.
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
