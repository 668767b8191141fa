"""Lemma 8: which of two directions that select the same tokens has the lower risk far out.

Main results: an explicit radius R0, computed from differences of margins, beyond which one of the risks is lower; the
risks are compared just beyond R0 and up to 10⁶ R0. For either direction, upper and lower bounds of the risk and its
first-order term.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.1, Lemma 8.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.direction_cases import pair_cases, pairs_for
from reference_attention.directions import direction, margin_difference, neighbour_optimal, unit_difference
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.direction_certificate import as_defined
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.parts import Condition
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.rounding.sized_numbers import Sized, at_least_in_units
from theorems.token_selection.directions.directional_risk import (
    FACTORS,
    LOG2,
    NEARER,
    Costs,
    NearestTokens,
    along,
    crossing,
    resolved_radii,
    with_unit_rounding,
)
from theorems.token_selection.directions.leading_term import LEADING, sharp_claim

ASSUMPTIONS = ("well-behaved-loss", "wider-direction", "decided-neighbours")


def _first_is_neighbour_optimal(case: Case) -> bool:
    return neighbour_optimal(direction(case.problem.keys, case.arrays["q1"]), case.problem.scores)


IN_A = Condition(
    "both directions are neighbour-optimal (case a), and float64 resolves the risks beyond R0",
    _first_is_neighbour_optimal,
)
IN_B = Condition(
    "the neighbour of q1 scores higher (case b), and float64 resolves the risks beyond R0",
    lambda case: not _first_is_neighbour_optimal(case),
)
DEFINITION_3_OF_FIRST, DEFINITION_3_OF_SECOND = premise("definition-3-of-first"), premise("definition-3-of-second")
WIDER_MARGIN = premise("wider-margin")
NARROWER, WIDER = sharper("narrower-anywhere"), sharper("wider-anywhere")
LOWER_WINS = (
    stated_claim("wider-direction-wins", when=IN_A),
    sharper("risk-along-narrower", when=IN_A),
    sharper("risk-along-wider", when=IN_A),
)
HIGHER_WINS = (
    stated_claim("narrower-direction-wins", when=IN_B),
    sharper("gain-along-narrower", when=IN_B),
    sharper("gain-along-wider", when=IN_B),
)
"""The claims made at radii beyond R0 in case (b); LOWER_WINS are those in case (a)."""
LEADING_OF_FIRST = sharper("leading-term-of-first", when=LEADING)
LEADING_OF_SECOND = sharper("leading-term-of-second", when=LEADING)


def _cases() -> SearchStrategy[Case]:
    return pair_cases()


@statement(
    "lemma-8",
    "Dominance: the wider of two neighbour-optimal directions wins",
    source="Appendix B.5.1, Lemma 8",
    claims=(
        DEFINITION_3_OF_FIRST,
        DEFINITION_3_OF_SECOND,
        WIDER_MARGIN,
        NARROWER,
        WIDER,
        *LOWER_WINS,
        *HIGHER_WINS,
        LEADING_OF_FIRST,
        LEADING_OF_SECOND,
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=pairs_for,
    kernel=BELOW_ROUNDING,
)
def lemma_8(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let unit vectors q1, q2 select the same single tokens α, with directional margins θ1 < θ2.

    (a) If both are neighbour-optimal, L(R q2) < L(R q1) for all R > R0.
    (b) If q1 has one directional neighbour and it scores *strictly higher*, L(R q1) < L(R q2) for all R > R0.

    The directional margin of q is its least margin (k_iα − k_it)·q over t ≠ α_i; the tokens that attain it are q's
    directional neighbours. q is neighbour-optimal if each of them scores lower than its input's α.

    **Effective.** The margins a of tokens, the score gaps g, the slopes c_i, the constants S_low and S_high of lower-
    and of higher-scoring tokens, and the bound (*) are those of :mod:`.directional_risk`. Let θ⁺ be the smallest margin
    of q1 over lower-scoring tokens, θ⁻ that over higher-scoring tokens, and w = Σ c_i |g_it| over the tokens that
    attain θ1.

    (a) θ⁺ = θ1 < θ⁻. By (*) and a ≥ 0,
            n (L(Rq1) − L_α) ≥ w e^{−Rθ1}/T − S_high e^{−Rθ⁻},    n (L(Rq2) − L_α) ≤ S_low e^{−Rθ2}.
        Let R0 = max( log(2T S_high/w)/(θ⁻ − θ1), log(2T S_low/w)/(θ2 − θ1) ). For R ≥ R0 the terms with S_high and
        S_low are each at most half of w e^{−Rθ1}/T, so L(Rq1) − L_α ≥ w e^{−Rθ1}/(2Tn) ≥ L(Rq2) − L_α, strictly
        for R > R0.
    (b) θ⁻ = θ1 < θ⁺: the same with the signs exchanged,
            n (L(Rq1) − L_α) ≤ −w e^{−Rθ1}/T + S_low e^{−Rθ⁺},    n (L(Rq2) − L_α) ≥ −S_high e^{−Rθ2},
        R0 = max( log(2T S_low/w)/(θ⁺ − θ1), log(2T S_high/w)/(θ2 − θ1) ).

    Both bounds hold at every R > 0 and are tried from R = 1/θ1 on; the risks are compared beyond R0, at the radii that
    float64 resolves (:func:`.directional_risk.resolved_radii`).

    Two remarks. The proof does not use that q2 is neighbour-optimal in (a), nor that q1 has only one neighbour in (b).
    And R0 also depends on θ⁻ − θ1, the difference to the margin of the next token of *higher* score. Case 1 of the
    paper's proof omits this ("only depends on the margin difference and global problem variables"): with θ2 − θ1 fixed
    R0 is unbounded.

    **Sharp.** n (L(Rq) − L_α) e^{Rθ} → Σ |ℓ'(γ_iα_i)| (γ_iα_i − γ_it) over the directional neighbours of q, for either
    direction, with an explicit remainder (:func:`.leading_term.leading_term`).
    """
    keys, scores = case.problem.keys, case.problem.scores
    first, second = (under_test[direction](keys, case.arrays[name]) for name in ("q1", "q2"))
    yield from premises(
        as_defined(first, keys, case.arrays["q1"], DEFINITION_3_OF_FIRST),
        as_defined(second, keys, case.arrays["q2"], DEFINITION_3_OF_SECOND),
    )
    if first.least is None or second.least is None:
        yield Claim(WIDER_MARGIN, Form.EXACT, -1.0, 0.0, EXACT, "no margin was reported for one of the directions")
        return
    wider = margin_difference(second, first)
    yield at_least(WIDER_MARGIN, Form.EXACT, np.sign(wider), 1.0, rounding=0.0, why=EXACT, points="pair")
    if wider <= 0:
        return
    costs = Costs.of(case.problem, first.best(scores))
    lower_wins = neighbour_optimal(first, scores)
    low, high = (NearestTokens.among(first, costs, mask) for mask in (costs.lower, costs.higher))
    lead, against = (low, high) if lower_wins else (high, low)
    log_for, log_against = (costs.log_low, costs.log_high) if lower_wins else (costs.log_high, costs.log_low)
    gap = unit_difference(against.least, first, lead.least, first)
    constant = LOG2 + costs.log_T - lead.log_weight
    start = max(crossing(constant + log_against, gap), crossing(constant + log_for, wider), 1 / first.margin)
    far = start * np.array(FACTORS)
    R = np.concatenate([np.array(NEARER) / first.margin, far])
    excess = costs.excess(np.stack([along(q, R) for q in (first, second)]), under_test, NARROWER)
    # In case (b) all signs are exchanged, which reduces it to case (a).
    first_excess, second_excess = excess if lower_wins else -excess
    of_lead, opposed = R * with_unit_rounding(first.margin), R * against.margin
    least = Sized.exp(lead.log_weight - costs.log_T - of_lead) - Sized.exp(log_against - opposed)
    most = Sized.exp(log_for - R * with_unit_rounding(second.margin))
    near = np.s_[: len(NEARER)]
    yield at_least_in_units(NARROWER, Form.EFFECTIVE, first_excess[near], least[near], "radius")
    yield at_least_in_units(WIDER, Form.EFFECTIVE, most[near], second_excess[near], "radius")
    resolved = resolved_radii(costs, far).size
    if resolved:
        winner, of_one, of_two = LOWER_WINS if lower_wins else HIGHER_WINS
        beyond = np.s_[len(NEARER) : len(NEARER) + resolved]
        half = Sized.exp(lead.log_weight - np.log(2 * exact(case.problem.T)) - of_lead)
        yield at_least_in_units(winner, Form.EFFECTIVE, first_excess[beyond], second_excess[beyond], "radius")
        yield at_least_in_units(of_one, Form.EFFECTIVE, first_excess[beyond], half[beyond], "radius")
        yield at_least_in_units(of_two, Form.EFFECTIVE, most[beyond], second_excess[beyond], "radius")
    for name, q, along_q in ((LEADING_OF_FIRST, first, excess[0]), (LEADING_OF_SECOND, second, excess[1])):
        yield from sharp_claim(name, q, costs, far, along_q[len(NEARER) :])
