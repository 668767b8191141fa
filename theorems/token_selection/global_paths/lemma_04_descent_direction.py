"""Lemma 4: the max-margin direction is a descent direction everywhere.

Main result: an explicit lower bound on −⟨∇L(p), p_mm⟩ at every p, an equality for two tokens.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.core.att_svm import solved
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import calls
from theorems.core.points import climb, probe_points
from theorems.core.statement import statement
from theorems.rounding.evaluation import GRADIENT, Evaluation, scaled_gradient_of
from theorems.rounding.forward_error import UNDERFLOW, dot_error, relative_error


@statement(
    "lemma-4",
    "The max-margin direction descends everywhere",
    source="Appendix B.1, Lemma 4",
    assumptions=("well-behaved-loss", "strict-optimum", "equal-non-optimal-scores", "separable"),
    kernel=calls("its gradient descends along p_mm at every point", turn=3),
    survives={
        "gradient-too-long": "twice the gradient descends twice as much",
        "svm-scaled": "a longer p_mm descends all the more",
    },
)
def lemma_4(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Under Assumptions A and B, if GMM exists, ⟨∇L(p), p_mm⟩ < 0 for every p. Effective form:

        −⟨∇L(p), p_mm⟩ ≥ (1/n) Σ_i |ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt),

    gap_i = γ_i,opt minus the common other score.

    Derivation. −⟨∇L(p), p_mm⟩ = (1/n) Σ_i |ℓ'_i| Cov_{s_i}(h, γ) with h_t = k_t·p_mm. As γ takes two values
    only, Cov(h, γ) = gap s_opt (1 − s_opt) (h_opt − h̄), h̄ the s-average of h over the other tokens, and
    h_opt − h_t ≥ 1 for each of them. The right side is positive at every p. With T = 2 and all margins 1 the
    two sides are equal, so that nothing but rounding separates them: both are divided by e^{log_scale} of
    the gradient, and compared so at any norm of p.
    """
    problem = case.problem
    p_mm = solved(problem, problem.optimal, under_test, "descent", Form.EFFECTIVE).p

    def both_sides(points: Float64[np.ndarray, "m d"]) -> tuple[Float64[np.ndarray, "m"], ...]:
        return _sides(problem, points, p_mm, under_test)

    def violation(points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        left, right, rounding = both_sides(points)
        return np.asarray((right - left - rounding) / right)

    rng = case.rng()
    points = climb(rng, probe_points(rng, problem, p_mm), violation)
    left, right, rounding = both_sides(points)
    yield at_least("descent", Form.EFFECTIVE, left, right, rounding=rounding, scale=right, why=GRADIENT)


def _sides(
    problem: Problem,
    points: Float64[np.ndarray, "m d"],
    p_mm: Float64[np.ndarray, "d"],
    under_test: Implementation,
) -> tuple[Float64[np.ndarray, "m"], ...]:
    """Left side, right side and rounding, (m,) each, in units of e^{log_scale} of the gradient."""
    mine = Evaluation(problem, points, under_test.textbook_eps)
    own = mine.gradient
    direction = scaled_gradient_of(under_test, problem, points, own.log_scale)
    left = -np.sum(direction * p_mm, axis=-1)
    left_error = dot_error(direction, p_mm, own.error)
    gap = np.max(problem.gaps(), axis=1)
    log_terms = (
        mine.log_slopes
        + np.log(gap)
        + mine.log_weight_of(problem.optimal)
        + mine.log_complement(problem.optimal)
        - math.log(problem.n)
    )
    shift = np.where(np.isfinite(own.log_scale), own.log_scale, 0.0)[:, None]
    terms = np.exp(log_terms - shift)
    log_error = 2 * np.max(mine.log_weights_error, axis=-1) + mine.log_slopes_error
    log_error = log_error + EPS * (problem.T + problem.n + 8 + 4 * np.abs(log_terms) + 2 * np.abs(shift))
    right_error = np.sum(terms * relative_error(log_error), axis=-1) + UNDERFLOW
    return left, np.sum(terms, axis=-1) + UNDERFLOW, left_error + right_error
