"""The regularization path of W without a strict optimum, separation, or a decreasing loss.

References: *Transformers as Support Vector Machines*, Theorem 2 (W-ERM).
"""

from __future__ import annotations

from generators.score_assumptions import optimal_sets
from theorems.without.ball_minimum import path_diverges
from theorems.without.query_drawing import plain_query_cases
from theorems.without.theorem_1 import turns_to_max_margin
from theorems.without.weakening import Weakening

TSVM_FROBENIUS_PATH = Weakening(
    "tsvm-frobenius-path",
    turns_to_max_margin,
    "W̄(R) = argmin_{‖W‖_F ≤ R} L(W) satisfies W̄(R)/R → W^mm/‖W^mm‖_F",
)
tied_scores = TSVM_FROBENIUS_PATH.without(
    "strict-optimum",
    "Let two tokens tie for the highest score: selecting either minimises the risk, and the path selects the one that"
    " can have the larger margin over the other tokens. W^mm may be the solution for the other one.",
    cases=plain_query_cases(n=(1, 1), tokens=(3, 3), d=(2, 2), e=(1, 1)).filter(
        lambda case: bool((optimal_sets(case).sum(axis=1) > 1).any())
    ),
)
increasing_loss = TSVM_FROBENIUS_PATH.without(
    "well-behaved-loss",
    "Let the loss increase for large scores: the path then leaves the token of highest score.",
    cases=plain_query_cases(n=(1, 1), tokens=(2, 2), d=(1, 1), e=(1, 1), losses=("squared",)),
)
not_separable = Weakening(
    "tsvm-frobenius-path",
    path_diverges,
    "W̄(R)/R converges to a matrix of norm one, as it converges to W^mm/‖W^mm‖_F if W^mm exists",
).without(
    "separable",
    "Let two inputs with the same query have opposite labels: they need opposite W. The risk has a finite minimiser,"
    " at which the path stays, and W̄(R)/R → 0. (A single input is always separable, by W = v zᵀ.)",
    cases=plain_query_cases(n=(2, 2), tokens=(2, 2), d=(1, 1), e=(1, 1)),
)
