"""The upper bound of 1 − cos(p(t), p_mm) that ``descent-from-a-margin`` proves for a run.

References: :mod:`theorems.token_selection.global_paths.descent_from_a_margin`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import in_floats
from theorems.token_selection.global_paths.margin_constants import MarginConstants, least_progress


def proven_bound(problem: Problem, svm: MaxMargin, points: Float64[np.ndarray, "r d"]) -> float | None:
    """Compute a bound of 1 − cos(p(t), p_mm) at the last iterate of a run whose steps go along −∇L.

    The bound uses only the final part of the run in which every optimal logit exceeds the others by at least
    log(2(T−1)A), A = max (k_iα − k_it)·p_mm. Return None if this part has no step, or if the tokens of p_mm are not the
    unique optimal tokens. The bound is computed in floats, without rounding bounds: it serves for comparison, and no
    claim uses it.
    """
    best = problem.scores == problem.scores.max(axis=1, keepdims=True)
    if (best.sum(axis=1) > 1).any() or not np.array_equal(svm.alpha, problem.optimal):
        return None
    with in_floats():
        constants = MarginConstants(problem, svm)
        margins = constants.margins(points)
        outside = np.flatnonzero(~(margins >= constants.region))
        first = int(outside[-1]) + 1 if len(outside) else 0
        p, m = points[first:], margins[first:]
        if len(p) < 2:
            return None
        gained = least_progress(constants, p[:, None], np.diff(p, axis=0)[:, None], m[:-1, None])[-1, 0]
        along = p[0] @ svm.direction + gained
        return float(1 - along / np.linalg.norm(p[-1]))
