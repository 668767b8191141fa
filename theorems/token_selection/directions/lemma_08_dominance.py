"""Lemma 8: of two directions that select the same tokens, which one has the lower risk far out.

Main results: an explicit radius R0 through margin differences, checked at 1⁺ to 10⁶ times R0; two-sided bounds and the
leading term of the risk along either direction.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.1, Lemma 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.direction_cases import pair_cases, pairs_for
from reference_attention.directions import Direction, margin_difference, neighbour_optimal, unit_difference
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import BELOW_ROUNDING
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.token_selection.directions.definition_3 import as_defined
from theorems.token_selection.directions.directional_risk import (
    FACTORS,
    LOG2,
    NEARER,
    Costs,
    Lead,
    crossing,
    float_of,
    told_apart,
)
from theorems.token_selection.directions.excess_claims import (
    Excess,
    above,
    above_minus,
    at_least_difference,
    at_most_difference,
    below,
    below_zero,
    dominates,
)
from theorems.token_selection.directions.leading_term import sharp_claim

ASSUMPTIONS = ("well-behaved-loss", "wider-direction", "decided-neighbours")


def _cases() -> SearchStrategy[Case]:
    return pair_cases()


@statement(
    "lemma-8",
    "Dominance: the wider of two neighbour-optimal directions wins",
    source="Appendix B.5.1, Lemma 8",
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=pairs_for,
    kernel=BELOW_ROUNDING,
)
def lemma_8(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let unit vectors q1, q2 select the same single tokens α, with directional margins θ1 < θ2.

    (a) If both are neighbour-optimal, L(R q2) < L(R q1) for all R > R0.
    (b) If q1 has one directional neighbour and it scores *strictly higher*, L(R q1) < L(R q2) for all R > R0.

    **Effective.** Notation and the two-sided bound (*) are those of :mod:`.directional_risk`. Let θ⁺ (θ⁻) be
    the smallest margin of q1 over lower-scoring (higher-scoring) tokens, w = Σ c_i |g_it| over the tokens that
    attain θ1.

    (a) θ⁺ = θ1 < θ⁻. By (*) and a ≥ 0,
            n (L(Rq1) − L_α) ≥ w e^{−Rθ1}/T − S_high e^{−Rθ⁻},    n (L(Rq2) − L_α) ≤ S_low e^{−Rθ2}.
        From R0 = max( log(2T S_high/w)/(θ⁻ − θ1), log(2T S_low/w)/(θ2 − θ1) ) on, each of the two exponentials that
        were given away is at most half of w e^{−Rθ1}/T, so L(Rq1) − L_α ≥ w e^{−Rθ1}/(2Tn) ≥ L(Rq2) − L_α, strictly
        beyond R0.
    (b) θ⁻ = θ1 < θ⁺: the same with the signs exchanged,
            n (L(Rq1) − L_α) ≤ −w e^{−Rθ1}/T + S_low e^{−Rθ⁺},    n (L(Rq2) − L_α) ≥ −S_high e^{−Rθ2},
        R0 = max( log(2T S_low/w)/(θ⁺ − θ1), log(2T S_high/w)/(θ2 − θ1) ).

    Both bounds hold at every R > 0 and are tried from R = 1/θ1 on; the comparison beyond R0, where rounding leaves
    risks their size (:func:`.directional_risk.told_apart`).

    Two remarks. That q2 is neighbour-optimal is not used in (a), nor that the neighbour is the only one in (b). And R0
    depends on θ⁻ − θ1 too, the distance to the next token of *higher* score, which the paper's proof leaves out of
    case 1 ("only depends on the margin difference and global problem variables"); with θ2 − θ1 fixed R0 is unbounded.

    **Sharp.** n (L(Rq) − L_α) e^{Rθ} → Σ |ℓ'(γ_iα_i)| (γ_iα_i − γ_it) over the directional neighbours of q, for either
    direction, with an explicit remainder (:func:`.leading_term.leading_term`).
    """
    keys, scores = case.problem.keys, case.problem.scores
    first, second = (under_test.direction(keys, case.arrays[name]) for name in ("q1", "q2"))
    for name, one in (("first", first), ("second", second)):
        yield as_defined(one, keys, f"definition-3-of-{name}")
    if first.least is None or second.least is None:
        yield Claim("wider-margin", Form.EXACT, -1.0, 0.0, EXACT, "a direction was reported to have no margin at all")
        return
    wider = margin_difference(second, first)
    yield at_least("wider-margin", Form.EXACT, np.sign(wider), 1.0, rounding=0.0, why=EXACT, points="pair")
    if wider <= 0:
        return
    costs = Costs.of(case.problem, first.best(scores))
    lower_wins = neighbour_optimal(first, scores)
    low, high = (Lead.among(first, costs, mask) for mask in (costs.lower, costs.higher))
    lead, against = (low, high) if lower_wins else (high, low)
    log_for, log_against = (costs.log_low, costs.log_high) if lower_wins else (costs.log_high, costs.log_low)
    gap = unit_difference(against.least, first, lead.least, first)
    constant = LOG2 + math.log(case.problem.T) - lead.log_weight
    start = max(crossing(constant + log_against, gap), crossing(constant + log_for, wider), 1 / first.margin)
    radii = start * np.array(FACTORS)
    against_margin = math.inf if against.least is None else float_of(against.least, first)
    yield from _bounded(first, second, costs, lead, log_for, log_against, against_margin, under_test, lower_wins)
    seen = told_apart(costs, radii)
    if seen.size:
        yield from _compared(first, second, costs, lead, log_for, seen, under_test, lower_wins)
    for name, one in (("first", first), ("second", second)):
        claim = sharp_claim(f"leading-term-of-{name}", one, costs, radii, under_test)
        if claim is not None:
            yield claim


def _bounded(
    first: Direction,
    second: Direction,
    costs: Costs,
    lead: Lead,
    log_for: float,
    log_against: float,
    against_margin: float,
    under_test: Implementation,
    lower_wins: bool,
) -> Iterator[Claim]:
    """The two bounds before any exponential is given away, from R = 1/θ1 on."""
    radii = np.array(NEARER) / first.margin
    one, two = (Excess.at(costs, radii[:, None] * found.unit, under_test) for found in (first, second))
    log_n = math.log(costs.problem.n)
    leading = lead.log_weight - math.log(costs.problem.T) - log_n - radii * first.margin
    opposed = log_against - log_n - radii * min(against_margin, 1e300)
    most = log_for - log_n - radii * second.margin
    if lower_wins:
        yield at_least_difference("narrower-anywhere", Form.EFFECTIVE, one, leading, opposed, "radius")
        yield below("wider-anywhere", Form.EFFECTIVE, two, most, "radius")
    else:
        yield at_most_difference("narrower-anywhere", Form.EFFECTIVE, one, opposed, leading, "radius")
        yield above_minus("wider-anywhere", Form.EFFECTIVE, two, most, "radius")


def _compared(
    first: Direction,
    second: Direction,
    costs: Costs,
    lead: Lead,
    log_for: float,
    radii: Float64[np.ndarray, "r"],
    under_test: Implementation,
    lower_wins: bool,
) -> Iterator[Claim]:
    one, two = (Excess.at(costs, radii[:, None] * found.unit, under_test) for found in (first, second))
    n = costs.problem.n
    least = lead.log_weight - LOG2 - math.log(costs.problem.T * n) - radii * first.margin
    most = log_for - math.log(n) - radii * second.margin
    if lower_wins:
        yield dominates("wider-direction-wins", Form.EFFECTIVE, one, two, "radius")
        yield above("risk-along-narrower", Form.EFFECTIVE, one, least, "radius")
        yield below("risk-along-wider", Form.EFFECTIVE, two, most, "radius")
    else:
        yield dominates("narrower-direction-wins", Form.EFFECTIVE, two, one, "radius")
        yield below_zero("gain-along-narrower", Form.EFFECTIVE, one, least, "radius")
        yield above_minus("gain-along-wider", Form.EFFECTIVE, two, most, "radius")
