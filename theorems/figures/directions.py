"""Numbers of Figures 1, 2 and 8: max-margin directions of a data set, and the direction at which a descent ends."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from generators.chosen_tokens import separable_choices
from reference_attention.angles import one_minus_cosine
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, locally_optimal, max_margin
from reference_attention.training.descent import descend
from theorems.core.implementation import Implementation
from theorems.figures.figure import Numbers

STEP = 0.1
"""The length of a step of normalized gradient descent in the paper's figures."""
STEPS = 2000
"""The number of iterations after which the direction of p is compared with its limit: 1 − cos is then below 1e-3.

The authors' notebooks run 200 iterations.
"""
DRAWN = 200
"""The number of iterations whose points are drawn."""


def optima(problem: Problem, under_test: Implementation) -> list[tuple[str, MaxMargin]]:
    """Return the solutions p_mm that Theorem 4 allows as limits, as GMM (of the optimal tokens) or LMM."""
    directions = []
    for alpha in separable_choices(problem):
        svm = under_test[max_margin](problem.keys, alpha)
        if isinstance(svm, MaxMargin) and locally_optimal(svm, problem.scores):
            directions.append(("GMM" if np.array_equal(alpha, problem.optimal) else "LMM", svm))
    return directions


def optima_numbers(directions: list[tuple[str, MaxMargin]]) -> list[Numbers]:
    """Return the solutions of :func:`optima` as numbers that JSON can store."""
    return [
        {"kind": kind, "tokens": svm.alpha.tolist(), "direction": svm.direction.tolist(), "norm": svm.norm}
        for kind, svm in directions
    ]


def paths(problem: Problem, starts: Float64[np.ndarray, "b d"], under_test: Implementation) -> list[Numbers]:
    """Run normalized gradient descent from every start; return its points to draw and the solution at which it ends.

    ``ends_at`` is the index in :func:`optima` of the solution that selects the tokens of largest weight at the last
    iterate, None if there is no such solution; ``one_minus_cosine`` compares the last iterate with that solution.
    """
    run = descend(
        problem.keys,
        problem.scores,
        problem.loss,
        starts,
        steps=STEPS,
        log_step=float(np.log(STEP)),
        normalized=True,
        gradient=under_test[scaled_gradient],
    )
    limits = [svm for _, svm in optima(problem, under_test)]
    numbers = []
    for b, start in enumerate(starts):
        final = run.final[b]
        alpha = problem.selection_at(final)
        ends = next((k for k, svm in enumerate(limits) if np.array_equal(svm.alpha, alpha)), None)
        apart = None if ends is None else one_minus_cosine(final, limits[ends].direction)
        numbers.append(
            {
                "start": start.tolist(),
                "points": run.points[: DRAWN + 1, b].tolist(),
                "selects": alpha.tolist(),
                "ends_at": ends,
                "one_minus_cosine": apart,
                "norm": float(np.linalg.norm(final)),
            }
        )
    return numbers
