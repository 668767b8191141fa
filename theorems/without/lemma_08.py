"""Lemma 8 without a larger margin of q2 than of q1, with neighbours of any score, or with a loss that increases.

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
    """Yield the lemma's claim on the order of L(R q1) and L(R q2) at large R.

    The claim is (a), L(R q2) < L(R q1), if q1 is neighbour-optimal, and otherwise (b), L(R q1) < L(R q2). A direction
    is neighbour-optimal if all of its directional neighbours score below the tokens that it selects.
    """
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
    "Let the loss increase: giving more weight to the token of higher score raises the risk, so that the order of the"
    " two risks is reversed.",
    cases=_pairs("squared"),
)
not_wider = LEMMA_8.without(
    "wider-direction",
    "Let q2 have the smaller directional margin, or select other tokens than q1: then q2 can have the higher risk.",
    cases=_pairs,
)
undecided_neighbours = LEMMA_8.without(
    "decided-neighbours",
    "Let only some directional neighbours of q1 score higher than α: q1 then need not have the lower risk."
    " Neighbours that score lower can have more effect; if a neighbour scores the same as its token, the next token"
    " decides (FINDINGS.md). Case (a) does not need the assumption on q2, whose neighbours may have any score.",
    cases=_pairs,
)
