"""The regularization path of W without a strict optimum, separation, or a decreasing loss.

References: *Transformers as Support Vector Machines*, Theorem 2 (W-ERM).
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.score_assumptions import optimal_sets
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.lowest import far_out, path_claim
from theorems.without.query_drawing import plain_query_cases
from theorems.without.risks import linear_risk
from theorems.without.theorem_1 import turns_to_max_margin
from theorems.without.weakened import weaken

REFUTED = "W̄(R) = argmin_{‖W‖_F ≤ R} L(W) satisfies W̄(R)/R → W^mm/‖W^mm‖_F"


def _tied_cases() -> SearchStrategy[Case]:
    drawn = plain_query_cases(n=(1, 1), tokens=(3, 3), d=(2, 2), e=(1, 1))
    return drawn.filter(lambda case: bool((optimal_sets(case).sum(axis=1) > 1).any()))


@weaken("tsvm-frobenius-path", without="strict-optimum", refutes=REFUTED, cases=_tied_cases)
def tied_scores(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let two tokens tie for the highest score: either will do for the risk, and W^mm may be that of the wrong one.

    The path goes to the one that can be selected with the larger margin over the others.
    """
    yield from turns_to_max_margin(case, under_test)


@weaken(
    "tsvm-frobenius-path",
    without="well-behaved-loss",
    refutes=REFUTED,
    cases=lambda: plain_query_cases(n=(1, 1), tokens=(2, 2), d=(1, 1), e=(1, 1), losses=("squared",)),
)
def increasing_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss increase: the path then leaves the best token."""
    yield from turns_to_max_margin(case, under_test)


@weaken(
    "tsvm-frobenius-path",
    without="separable",
    refutes="W̄(R)/R converges to a unit matrix, as it does to W^mm/‖W^mm‖_F where that exists",
    cases=lambda: plain_query_cases(n=(2, 2), tokens=(2, 2), d=(1, 1), e=(1, 1)),
)
def not_separable(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let two inputs of the same query have opposite labels: they ask for opposite W.

    The risk has a finite minimiser, at which the path stays, and W̄(R)/R → 0. (A single input is always separable, by
    W = v zᵀ.)
    """
    problem = case.problem
    yield from path_claim("path-diverges", linear_risk(problem, under_test), problem.d, 1 / problem.key_scale, far_out)
