"""Descents on W without separation, local optimality, starts in the cone, or with a squared loss.

References: *Transformers as Support Vector Machines*, Theorems 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.numbers import integers
from generators.query_cases import query_cases
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.follow_flow import direction_claims, start_of
from theorems.without.query_drawing import plain_query_cases
from theorems.without.signed_flow import norm_of_flow
from theorems.without.theorem_3 import behind, distance_in_a_cone, on_the_ray, proper_cone, wrong_end
from theorems.without.weakened import weaken

DIVERGES = "from every W(0), ‖W(k)‖_F → ∞, for ∇L vanishes nowhere"


@weaken(
    "tsvm-no-stationary-point",
    without="well-behaved-loss",
    refutes=DIVERGES,
    cases=lambda: plain_query_cases(n=(1, 1), tokens=(2, 2), d=(1, 1), e=(1, 1), losses=("squared",)),
)
def squared_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss increase again: the best token can be too good, and the risk has a minimiser at a mixture."""
    yield norm_of_flow(case.problem, start_of(case))


@weaken(
    "tsvm-no-stationary-point",
    without="separable",
    refutes=DIVERGES,
    cases=lambda: plain_query_cases(n=(2, 2), tokens=(2, 2), d=(1, 1), e=(1, 1)),
)
def not_separable(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let two inputs of the same query have opposite labels: they ask for opposite W, and the risk has a minimiser."""
    yield norm_of_flow(case.problem, start_of(case))


FROM_A_CONE = "from every W(0) in a cone around W^mm_α far enough out, W(k)/‖W(k)‖_F → W^mm_α/‖W^mm_α‖_F"


def _unfit() -> SearchStrategy[Case]:
    def with_random_tokens(case: Case) -> SearchStrategy[Case]:
        return integers((1,), 0, case.problem.T - 1).map(lambda alpha: case.replace(alpha=alpha))

    return on_the_ray(plain_query_cases(n=(1, 1), e=(1, 1)).flatmap(with_random_tokens))


@weaken(
    "tsvm-local-descent",
    without="locally-optimal",
    refutes=FROM_A_CONE,
    cases=_unfit,
    violation=distance_in_a_cone,
)
def not_locally_optimal(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a neighbour score higher than α: it pulls W back, as the risk rises along W^mm_α at every distance."""
    yield from direction_claims(case.problem, start_of(case), under_test, case.chosen_tokens)


def _too_good() -> SearchStrategy[Case]:
    drawn = plain_query_cases(n=(1, 1), e=(1, 1), losses=("squared",))
    return on_the_ray(drawn.map(lambda case: case.replace(alpha=case.problem.optimal)))


@weaken(
    "tsvm-local-descent",
    without="well-behaved-loss",
    refutes="from every W(0) in a cone around W^mm_α far enough out, ‖W(k)‖_F → ∞",
    cases=_too_good,
    violation=proper_cone,
)
def too_good(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss increase again: a token that is too good raises the risk along W^mm_α, at every distance."""
    yield norm_of_flow(case.problem, start_of(case))


def _several() -> SearchStrategy[Case]:
    return query_cases(alpha="locally-optimal", start=True, plain=True)


@weaken(
    "tsvm-local-descent",
    without="in-cone",
    refutes="from every W(0), W(k)/‖W(k)‖_F → W^mm_α/‖W^mm_α‖_F if α is locally optimal",
    cases=_several,
    fails=behind,
    violation=wrong_end,
)
def outside_the_cone(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the start lie outside the cone of α: it may belong to another selection.

    Several selections can be locally optimal, and each attracts the starts around its own direction.
    """
    yield from direction_claims(case.problem, start_of(case), under_test, case.chosen_tokens)
