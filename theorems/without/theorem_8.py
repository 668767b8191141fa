"""Theorem 8 with a loss that has ℓ' = 0 at a point, a head for which mixing lowers the risk, or without separation.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D.1, Theorem 8; FINDINGS.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.case import Case
from generators.score_assumptions import optimal_sets
from reference_attention.svm.max_margin import max_margin
from reference_attention.svm.max_margin_sets import MaxMarginSets, max_margin_sets
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.ball_minimum import near, path_claim, path_diverges
from theorems.without.heads import headed_cases, headed_risk
from theorems.without.risks import Risk, linear_risk
from theorems.without.small_cases import flat_cases, plain_cases
from theorems.without.weakening import Weakening, weaken

REFUTED = "dist(p̄(R)/(RΘ), G_mm) → 0 for p̄(R) = argmin_{‖p‖≤R} L(p)"


def goes_to_the_set(case: Case, risk: Risk, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim that p̄(R)/R is near p/‖p‖ for one of the max-margin solutions p in the theorem's set G_mm.

    p̄(R) is the prompt of lowest risk with norm at most R; R goes up to 10⁶/Θ, where Θ = 1/‖p‖ is the margin of the
    solutions.
    """
    problem = case.problem
    sets = under_test[max_margin_sets](problem.keys, optimal_sets(case), under_test[max_margin])
    if isinstance(sets, MaxMarginSets):
        allowed = near(*(solution.p for solution in sets.solutions))
        yield from path_claim("path-distance", risk, problem.d, sets.norm, allowed)


@weaken("theorem-8", without="well-behaved-loss", refutes=REFUTED, cases=flat_cases)
def flat_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let ℓ' vanish at a point: it does not suffice that ℓ decreases strictly; ℓ' < 0 is needed.

    If ℓ' = 0 at the best score of one input, as for ℓ(u) = −u³ at 0, weight q_1 on this input's other tokens costs only
    q_1³. So the path gives the other input three times the margin, and does not converge to p_mm. The same data refute
    Theorem 1.
    """
    yield from goes_to_the_set(case, linear_risk(case.problem, under_test), under_test)


@weaken("theorem-8", without="mixing-hurts", refutes=REFUTED, cases=headed_cases)
def helpful_mixing(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the head ψ be larger at a token outside O_i, the input's optimal set: the path selects this token.

    Selecting it has a lower risk than selecting a token of O_i.
    """
    yield from goes_to_the_set(case, lambda points: headed_risk(case, points), under_test)


not_separable = Weakening(
    "theorem-8", path_diverges, "‖p̄(R)‖ → ∞ along a direction, as it does along G_mm if G_mm is not empty"
).without(
    "separable-optimal-sets",
    "Let the optimal keys lie among the others: no direction selects an optimal key, and the risk has a finite"
    " minimiser, at which the path stays.",
    cases=plain_cases(n=(1, 1), tokens=(3, 3), d=(1, 1)),
)
