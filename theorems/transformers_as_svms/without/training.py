"""Training W on inseparable data, for α that are not locally optimal, from outside the cone, or with a squared loss.

References: *Transformers as Support Vector Machines*, Theorems 4 and 5.
"""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.numbers import integers
from generators.query_cases import query_cases
from theorems.without.flow_claims import turns_to_chosen_tokens
from theorems.without.query_drawing import plain_query_cases
from theorems.without.signed_flow import flow_diverges
from theorems.without.theorem_3 import behind, distance_in_a_cone, on_the_ray, proper_cone, wrong_end
from theorems.without.weakening import Weakening

TSVM_NO_STATIONARY_POINT = Weakening(
    "tsvm-no-stationary-point", flow_diverges, "from every W(0), ‖W(k)‖_F → ∞, for ∇L vanishes nowhere"
)
squared_loss = TSVM_NO_STATIONARY_POINT.without(
    "well-behaved-loss",
    "Let the loss increase for large scores: if the best token scores too high, a mixture minimises the risk.",
    cases=plain_query_cases(n=(1, 1), tokens=(2, 2), d=(1, 1), e=(1, 1), losses=("squared",)),
)
not_separable = TSVM_NO_STATIONARY_POINT.without(
    "separable",
    "Let two inputs with the same query have opposite labels: they need opposite W, so that the risk has a minimiser.",
    cases=plain_query_cases(n=(2, 2), tokens=(2, 2), d=(1, 1), e=(1, 1)),
)


def _unfit() -> SearchStrategy[Case]:
    def with_random_tokens(case: Case) -> SearchStrategy[Case]:
        return integers((1,), 0, case.problem.T - 1).map(lambda alpha: case.replace(alpha=alpha))

    return on_the_ray(plain_query_cases(n=(1, 1), e=(1, 1)).flatmap(with_random_tokens))


not_locally_optimal = Weakening(
    "tsvm-local-descent",
    turns_to_chosen_tokens,
    "from every W(0) of large enough norm in a cone around W^mm_α, W(k)/‖W(k)‖_F → W^mm_α/‖W^mm_α‖_F",
).without(
    "locally-optimal",
    "Let an SVM-neighbour score higher than α: it pulls W back, as the risk increases along W^mm_α at every norm.",
    cases=_unfit,
    violation=distance_in_a_cone,
)
too_good = Weakening(
    "tsvm-local-descent", flow_diverges, "from every W(0) of large enough norm in a cone around W^mm_α, ‖W(k)‖_F → ∞"
).without(
    "well-behaved-loss",
    "Let the loss increase for large scores: if α scores too high, the risk increases along W^mm_α at every norm.",
    cases=on_the_ray(
        plain_query_cases(n=(1, 1), e=(1, 1), losses=("squared",)).map(
            lambda case: case.replace(alpha=case.problem.optimal)
        )
    ),
    violation=proper_cone,
)


outside_the_cone = Weakening(
    "tsvm-local-descent",
    turns_to_chosen_tokens,
    "from every W(0), W(k)/‖W(k)‖_F → W^mm_α/‖W^mm_α‖_F if α is locally optimal",
).without(
    "in-cone",
    "Let the start lie outside the cone of α: several selections can be locally optimal, and each attracts the starts"
    " around its own direction, so that this start may lead to another selection.",
    cases=query_cases(alpha="locally-optimal", start=True, plain=True),
    fails=behind,
    violation=wrong_end,
)
