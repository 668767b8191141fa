"""Lemma 8 with directions that are not comparable, neighbours of any score, or a loss that increases.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.1, Lemma 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from reference_attention.directions import direction, neighbour_optimal
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.risks import lower_far_out
from theorems.without.small_cases import plain_cases, with_directions
from theorems.without.weakening import Weakening


def dominance(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the conclusion of the case that applies: (a) if q1 is neighbour-optimal, else (b)."""
    q1, q2 = case.arrays["q1"], case.arrays["q2"]
    first = under_test[direction](case.problem.keys, q1)
    if neighbour_optimal(first, case.problem.scores):
        yield lower_far_out("wider-direction-wins", case.problem, q2, q1, under_test)
    else:
        yield lower_far_out("narrower-direction-wins", case.problem, q1, q2, under_test)


def _pairs(*losses: str) -> SearchStrategy[Case]:
    names = losses or ("correlation", "logistic")
    return with_directions(plain_cases(n=(1, 1), d=(2, 2), losses=names), "q1", "q2")


LEMMA_8 = Weakening(
    "lemma-8",
    dominance,
    "L(R q2) < L(R q1) if q1 is neighbour-optimal, L(R q1) < L(R q2) if it is not, for all R > R0",
)
increasing_loss = LEMMA_8.without(
    "well-behaved-loss",
    "Let the loss increase: selecting the better token faster is then worse, and the order of risks is reversed.",
    cases=_pairs("squared"),
)
not_wider = LEMMA_8.without(
    "wider-direction",
    "Let q2 have the smaller directional margin, which decides, or select other tokens: it can then lose.",
    cases=_pairs,
)
undecided_neighbours = LEMMA_8.without(
    "decided-neighbours",
    "Let only some directional neighbours of q1 score higher than α: q1 then need not have the lower risk."
    " Neighbours that score lower can weigh more; if a neighbour scores the same, the next token decides"
    " (FINDINGS.md). Case (a) does not need its half of the assumption: q2 may have neighbours of any score.",
    cases=_pairs,
)
