"""Lemma 5: for one input, −∇L has hardly a larger component along p than along the max-margin direction.

Main result: ⟨∇L(p), p̄⟩ ≥ (1 + π) ⟨∇L(p), p̄_mm⟩ at every p with an explicit π(p), which vanishes as ‖p‖ grows.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import SOLVABLE_BLOCKS
from generators.problems import cases
from reference_attention.problem import Problem
from theorems.bounded import exact, with_rounding
from theorems.core.att_svm import solve_att_svm
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.points import affordable, climb, probe_points
from theorems.core.statement import statement
from theorems.rounding.attention_at import AttentionAt, violation_of

CORRELATION = stated_claim("correlation")

ASSUMPTIONS = ("well-behaved-loss", "strict-optimum", "equal-non-optimal-scores", "separable", "single-input")
POINTS = 150


def _cases() -> SearchStrategy[Case]:
    return cases(assumptions=ASSUMPTIONS, large=SOLVABLE_BLOCKS)


@statement(
    "lemma-5",
    "Gradient correlation for a single input",
    source="Appendix B.1, Lemma 5",
    claims=(CORRELATION,),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=calls("the kernel's gradient at every point, for n = 1", turn=2),
)
def lemma_5(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let n = 1, Assumptions A and B hold and GMM exist.

    For every π > 0 there is R_π such that ‖p‖ ≥ R_π implies

        ⟨∇L(p), p/‖p‖⟩ ≥ (1 + π) ⟨∇L(p), p_mm/‖p_mm‖⟩.

    Effective form: R_π = ‖p_mm‖ log(T−1)/π. In other words, the inequality holds at every p ≠ 0 with π(p) = ‖p_mm‖
    log(T−1)/‖p‖ in place of π.

    Derivation. With two score values, which differ by the gap, −⟨∇L(p), q⟩ = |ℓ'| gap s_opt(1 − s_opt) M(q) for every
    q, where s_opt is the weight of the optimal token and M(q) is the average of the margins (k_opt − k_t)·q over t ≠
    opt with weights w_t ∝ e^{−m_t}, m_t = (k_opt − k_t)·p. Gibbs' identity Σ w_t m_t = H(w) − log Σ e^{−m_t}, with the
    entropy H(w) ≤ log(T−1) and Σ e^{−m_t} ≥ e^{−min m}, gives M(p/‖p‖) ≤ (min m + log(T−1))/‖p‖; no unit vector has a
    larger minimal margin than Θ = 1/‖p_mm‖, so M(p/‖p‖) ≤ Θ + log(T−1)/‖p‖ = (1 + π(p)) Θ. And M(p_mm/‖p_mm‖) ≥ Θ
    because each margin of p_mm is at least 1. With T = 2, π = 0. Both sides are divided by the gradient's scale
    e^{log_scale}.
    """
    problem = case.problem
    solution = solve_att_svm(problem, problem.optimal, under_test, CORRELATION, Form.EFFECTIVE).p

    def sides(points: Float64[np.ndarray, "m d"]) -> tuple[Any, Any]:
        gradient = AttentionAt(problem, points, under_test.textbook_eps).gradient_of(under_test, CORRELATION)
        p, p_mm = exact(points), with_rounding(solution)
        pi = norm(p_mm) * log_others(problem) / norm(p, axis=-1)
        return np.vecdot(gradient, p) / norm(p, axis=-1), (1 + pi) * (gradient @ p_mm) / norm(p_mm)

    rng = case.rng()
    points = probe_points(rng, problem, solution, m=affordable(problem, POINTS))
    points = climb(rng, points[np.any(points != 0, axis=1)], violation_of(sides))
    yield at_least(CORRELATION, Form.EFFECTIVE, *sides(points))


def log_others(problem: Problem) -> Any:
    """Return log(T − 1), the largest entropy of weights on the tokens that are not optimal."""
    return np.log(exact(problem.T - 1))
