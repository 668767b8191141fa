"""Lemma 9 with neighbours of lower score, or a loss that increases.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.2, Lemma 9.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.direction_assumptions import higher_neighbours
from generators.finding import Finding
from reference_attention.directions import direction
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.risks import below_selection
from theorems.without.small_cases import plain_cases, with_directions
from theorems.without.weakening import Weakening


def _directions(*losses: str) -> SearchStrategy[Case]:
    return with_directions(plain_cases(losses=losses or ("correlation", "logistic")), "q")


def gains(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim L(R q) < L_α at large R, where L_α is the risk if the tokens α that q selects have all weight."""
    yield below_selection("gain", case.problem, case.arrays["q"], under_test)


def _lower(case: Case) -> Finding:
    """Check that neighbours score higher; leave the case undecided if q does not select a unique token."""
    finding = higher_neighbours(case)
    if finding.holds is False and not direction(case.problem.keys, case.arrays["q"]).unique:
        return Finding(None, finding.evidence)
    return finding


LEMMA_9 = Weakening("lemma-9", gains, "L(R q) < L_α = (1/n) Σ ℓ(γ_iα_i) for all R > R0")
lower_neighbour = LEMMA_9.without(
    "higher-neighbours",
    "Let directional neighbours score lower: weight that is not on the selected token is on them and raises the risk.",
    cases=_directions,
    fails=_lower,
)
increasing_loss = LEMMA_9.without(
    "well-behaved-loss",
    "Let the loss increase: weight on a neighbour of higher score then raises the risk.",
    cases=_directions("squared"),
)
