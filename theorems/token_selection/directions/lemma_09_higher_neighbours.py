"""Lemma 9: if a direction's neighbours all score higher than its tokens, the risk falls below its limit far out.

Main result: an explicit radius R0 such that L(Rq) < L_α for R > R0, with upper and lower bounds of the gain L_α − L(Rq)
and its first-order term. L_α is the risk of selecting the tokens α of q, the limit of L(Rq) as R → ∞.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.2, Lemma 9.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.direction_cases import Kind, direction_cases, directions_for
from reference_attention.directions import direction, unit_difference
from theorems.bounded import exact
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.direction_certificate import DEFINITION_3, as_defined
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.rounding.sized_numbers import Sized, at_least_in_units
from theorems.token_selection.directions.directional_risk import (
    FACTORS,
    LOG2,
    Costs,
    NearestTokens,
    along,
    crossing,
    with_unit_rounding,
)
from theorems.token_selection.directions.leading_term import LEADING, sharp_claim

GAIN = stated_claim("gain")
GAIN_AT_MOST = sharper("gain-at-most")
LEADING_TERM = sharper("leading-term", when=LEADING)

ASSUMPTIONS = ("well-behaved-loss", "higher-neighbours")
KINDS: tuple[Kind, ...] = ("higher",)


def _cases() -> SearchStrategy[Case]:
    return direction_cases(kinds=KINDS, general=False)


@statement(
    "lemma-9",
    "Directional neighbours of higher score: mixing beats selecting",
    source="Appendix B.5.2, Lemma 9",
    claims=(DEFINITION_3, GAIN, GAIN_AT_MOST, LEADING_TERM),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=directions_for,
    kernel=BELOW_ROUNDING,
)
def lemma_9(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a unit vector q select single tokens α, and let every directional neighbour score strictly above its α_i.

    Then L(R q) < L_α = (1/n) Σ ℓ(γ_iα_i) for all R > R0.

    **Effective.** With w = Σ c_i |g_it| over the neighbours, θ the margin of q and θ⁺ > θ its smallest margin over
    *lower*-scoring tokens, (*) of :mod:`.directional_risk`, which defines c, g, S_low and S_high, gives

        −S_high e^{−Rθ} ≤ n (L(Rq) − L_α) ≤ −w e^{−Rθ}/T + S_low e^{−Rθ⁺} ≤ −w e^{−Rθ}/(2T)

    from R0 = log(2T S_low/w)/(θ⁺ − θ) on; R0 = 0 when no token scores lower. (The paper's R0 has the next margin of any
    token instead of θ⁺, but only tokens of lower score raise the risk.)

    **Sharp.** n (L(Rq) − L_α) e^{Rθ} → Σ |ℓ'(γ_iα_i)| (γ_iα_i − γ_it) < 0 over the neighbours, remainder explicit.
    """
    problem = case.problem
    q = under_test[direction](problem.keys, case.arrays["q"])
    yield from premises(as_defined(q, problem.keys, case.arrays["q"]))
    costs = Costs.of(problem, q.best(problem.scores))
    high, low = (NearestTokens.among(q, costs, mask) for mask in (costs.higher, costs.lower))
    if q.least is None or high.least is None:
        yield Claim(GAIN, Form.EFFECTIVE, -1.0, 0.0, EXACT, "no neighbour of higher score was reported")
        return
    gap = unit_difference(low.least, q, high.least, q)
    start = max(crossing(LOG2 + costs.log_T + costs.log_low - high.log_weight, gap), 1 / q.margin)
    R = start * np.array(FACTORS)
    excess, decay = costs.excess(along(q, R), under_test, GAIN), R * with_unit_rounding(q.margin)
    gain = Sized.exp(high.log_weight - np.log(2 * exact(problem.T)) - decay)
    yield at_least_in_units(GAIN, Form.EFFECTIVE, -gain, excess, "radius")
    yield at_least_in_units(GAIN_AT_MOST, Form.EFFECTIVE, excess, -Sized.exp(costs.log_high - decay), "radius")
    yield from sharp_claim(LEADING_TERM, q, costs, R, excess)
