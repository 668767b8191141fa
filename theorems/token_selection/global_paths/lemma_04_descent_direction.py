"""Lemma 4: the max-margin direction is a descent direction everywhere.

Main result: an explicit lower bound on −⟨∇L(p), p_mm⟩ at every p; equality holds for two tokens whose margin is 1.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

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
from theorems.rounding.attention_at import AttentionAt, Numbers, violation_of

DESCENT = stated_claim("descent")

ASSUMPTIONS = ("well-behaved-loss", "strict-optimum", "equal-non-optimal-scores", "separable")
POINTS = 150


def _cases() -> SearchStrategy[Case]:
    return cases(assumptions=ASSUMPTIONS, large=SOLVABLE_BLOCKS)


@statement(
    "lemma-4",
    "The max-margin direction descends everywhere",
    source="Appendix B.1, Lemma 4",
    claims=(DESCENT,),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=calls("the kernel's gradient at every point, which must descend along p_mm", turn=3),
)
def lemma_4(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumptions A and B hold. If GMM exists, ⟨∇L(p), p_mm⟩ < 0 for every p.

    Effective form:

        −⟨∇L(p), p_mm⟩ ≥ (1/n) Σ_i |ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt),

    where s_i are the softmax weights and gap_i is γ_i,opt minus the common score of the other tokens.

    Derivation. −⟨∇L(p), p_mm⟩ = (1/n) Σ_i |ℓ'_i| Cov_{s_i}(h, γ) with h_t = k_t·p_mm. As γ takes two values only,
    Cov(h, γ) = gap s_opt (1 − s_opt) (h_opt − h̄), h̄ the s-average of h over the other tokens, and h_opt − h_t ≥ 1 for
    each of them. The right side is positive at every p. With T = 2 and all margins 1 the left and the right side are
    equal up to rounding. Both sides are divided by the gradient's scale e^{log_scale}, so that they can be compared at
    any norm of p.
    """
    problem = case.problem
    solution = solve_att_svm(problem, problem.optimal, under_test, DESCENT, Form.EFFECTIVE).p

    def sides(points: Float64[np.ndarray, "m d"]) -> tuple[Any, Any]:
        at = AttentionAt(problem, points, under_test.textbook_eps)
        climbs = np.exp(log_climb(at) - at.log_scale[:, None])
        return -at.gradient_of(under_test, DESCENT) @ with_rounding(solution), np.sum(climbs, axis=-1)

    rng = case.rng()
    points = climb(rng, probe_points(rng, problem, solution, m=affordable(problem, POINTS)), violation_of(sides))
    yield at_least(DESCENT, Form.EFFECTIVE, *sides(points))


def log_climb(at: AttentionAt) -> Numbers:
    """Return log of (1/n)|ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt), the terms of the lower bound of Lemma 4, (b, n)."""
    factors = at.log_slopes + (log_gaps(at.problem) - np.log(exact(at.problem.n)))
    return factors + at.log_weight_of(at.problem.optimal) + at.log_complement(at.problem.optimal)


def log_gaps(problem: Problem) -> Numbers:
    """Return log gap_i, where gap_i is γ_i,opt minus the common score of the other tokens (Assumption B)."""
    return np.log(exact(problem.scores.max(axis=1)) - problem.scores.min(axis=1))
