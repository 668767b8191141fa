"""Theorem 1 without a strict optimum, separation, or a decreasing loss.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1, Appendix B.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.case import Case
from generators.problems import cases
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.ball_minimum import near, path_claim, path_diverges
from theorems.without.risks import linear_risk
from theorems.without.small_cases import plain_cases
from theorems.without.two_valued import tied_cases, tied_optimum
from theorems.without.weakening import Weakening


def turns_to_max_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim that p̄(R)/R is near p̄_mm(α) for R up to 10⁶ ‖p_mm‖.

    p̄(R) is the prompt of lowest risk with norm at most R.
    """
    problem = case.problem
    svm = under_test[max_margin](problem.keys, case.chosen_tokens)
    if not isinstance(svm, Infeasible):
        yield from path_claim(
            "path-correlation", linear_risk(problem, under_test), problem.d, svm.norm, near(svm.direction)
        )


THEOREM_1 = Weakening("theorem-1", turns_to_max_margin, "p̄(R) = argmin_{‖p‖≤R} L(p) satisfies p̄(R)/R → p̄_mm")
tied_scores = THEOREM_1.without(
    "strict-optimum",
    "Let two tokens tie for the highest score: selecting either minimises the risk, and the path selects the one that"
    " can have the larger margin over the other tokens. p_mm may be the solution for the other one. (Theorem 8 gives"
    " the limit of the path.)",
    cases=tied_cases,
    fails=tied_optimum,
)
increasing_loss = THEOREM_1.without(
    "well-behaved-loss",
    "Let the loss increase for large scores: the path then leaves the token of highest score. It does not even suffice"
    " that the loss decreases strictly; ℓ' must be negative: see ``theorem-8`` and FINDINGS.md.",
    cases=cases(assumptions=("strict-optimum", "separable"), n=1, tokens=2, d=1, losses=("squared",), plain=True),
)


not_separable = Weakening(
    "theorem-1", path_diverges, "p̄(R)/R converges to a unit vector, as it converges to p̄_mm if p_mm exists"
).without(
    "separable",
    "Let the best key lie between the others: no direction selects it, and the risk has a finite minimiser. The path"
    " stays there, and p̄(R)/R → 0.",
    cases=plain_cases(n=(1, 1), tokens=(3, 3), d=(1, 1)),
)
