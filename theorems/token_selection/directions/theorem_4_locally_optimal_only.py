"""Theorem 4 (Theorem 7 of the appendix): local regularization paths reach no direction but locally optimal ones.

Main results: in each of the three cases of the proof a direction that beats a whole neighbourhood of q, checked exactly
as a construction and effectively as an inequality; and the local path itself, which leaves q or stays bounded.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 4, Appendix B.5.2;
:mod:`.better_directions`, :mod:`.directional_risk`, :mod:`.excluded_neighbourhood`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.direction_cases import direction_cases, directions_for
from generators.numbers import MODERATE
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import BELOW_ROUNDING
from theorems.core.statement import always, statement
from theorems.core.tolerances import EXACT
from theorems.token_selection.directions.better_directions import leaving_only_higher, selecting_best, tilted_direction
from theorems.token_selection.directions.definition_3 import as_defined
from theorems.token_selection.directions.directional_risk import Costs
from theorems.token_selection.directions.excluded_neighbourhood import (
    BEATEN_CLAIMS,
    OUTDONE_CLAIMS,
    Beaten,
    Outdone,
    cone_of,
    narrow_cone,
)
from theorems.token_selection.directions.local_path_claims import PATH_CLAIMS, path_claims

ALSO_BETTER = "p_mm is only a better direction to tilt to, and on these cases the wrong one is better, too"

ASSUMPTIONS = (
    "well-behaved-loss",
    "distinct-scores",
    "general-position",
    "direction-given",
    "not-locally-optimal-direction",
)


def _cases() -> SearchStrategy[Case]:
    return direction_cases(large=MODERATE)


@statement(
    "theorem-4",
    "Local regularization paths reach nothing but locally optimal directions",
    source="Theorem 4; Appendix B.5.2, Theorem 7",
    claims=always("definition-3", "better-direction") | BEATEN_CLAIMS | OUTDONE_CLAIMS | PATH_CLAIMS,
    states=("path-leaves-or-stays-bounded", "narrow-path-leaves-or-stays-bounded"),
    premises=("definition-3", "path-is-no-higher-than-its-seeds", "narrow-path-is-no-higher-than-its-seeds"),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=directions_for,
    aliases=("theorem-7",),
    kernel=BELOW_ROUNDING,
    needs={"direction-given": "the theorem speaks of a direction q; without one it says nothing"},
)
def theorem_4(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Scores distinct within each input, keys in general position, q a unit vector that is not the direction of p_mm(α)
    for any locally optimal α. For all ε, R0 > 0 the local path p̄(R) = argmin of L over C_{ε,R0}(q) ∩ {‖p‖ ≤ R} has
    bounded norm, or p̄(R)/‖p̄(R)‖ does not tend to q; either way p̄(R)/R does not tend to q.

    Notation: α_i is the selected token (the best of them where several tie); D_δ(q) = {x : ‖x‖ = 1, ‖x − q‖ ≤ δ};
    B = max ‖k_iα_i − k_it‖, so that margins on D_δ(q) differ from those of q by at most Bδ; S_low, S_high, c_i and
    (*) as in :mod:`.directional_risk`; θ⁻ is the smallest margin of q over tokens that score above α_i. The
    *binding* tokens are those of smallest margin μ: the ties (μ = 0), or without ties the directional neighbours (μ
    = θ).

    **(A1) neighbour-optimal, (B) ties.** All binding tokens score lower, so θ⁻ > μ. Let x* select α with margin θ* > μ:
    in (A1) a tilt of q towards p_mm(α), which exists because q separates, and is wider because q is not max-margin;
    in (B) q + τ M⁺1 for the rows M of the ties. For δ = min(θ⁻ − μ, θ* − μ, 2θ)/(4B) and x ∈ D_δ(q), w = (number of
    binding tokens)·min c_i g_it:

        n (L(Rx) − L_α) ≥ w e^{−R(μ+Bδ)}/T − S_high e^{−R(θ⁻−Bδ)},    n (L(Rx*) − L_α) ≤ S_low e^{−Rθ*}.

    *Derivation.* Without ties all margins of x are ≥ θ − Bδ ≥ 0, so s_it ≥ e^{−R(θ+Bδ)}/T at a neighbour of q. With
    ties let A be the sum of e^{−Ra} over the m tied tokens of an input and C that over the others; C ≤ T−1−m, and
    A/(1+A+C) grows with A ≥ m e^{−RBδ}, hence is ≥ m e^{−RBδ}/T, whichever of the tied tokens x selects. A
    higher-scoring token has s_iu ≤ s_iu/s_iα ≤ e^{−R(θ⁻−Bδ)}. Then (*). So from

        R_q = max( log(2T S_high/w)/(θ⁻ − μ − 2Bδ), log(2T S_low/w)/(θ* − μ − Bδ) )

    on, L(Rx*) < L(Rx) for *every* x ∈ D_δ(q): p̄(R) has norm at most R_q or is δ away from q. (The paper's footnote,
    that Lemma 8 may be applied uniformly because its radius depends on the margin difference alone, needs this
    repair: it depends on θ⁻ − μ as well, which is bounded below only once δ is small.) Both cases are one argument,
    with μ = 0 in (B).

    If moreover the cone lies in D_{δ'}(q), δ' = min(θ⁻ − μ, 2θ)/(4B), and R0 ≥ log(2T S_high/w)/(θ⁻ − μ − 2Bδ'), the
    risk is above L_α on all of it, and comparing with R x*: ‖p̄(R)‖ ≥ (Rθ* − log(2T S_low/w))/(μ + Bδ') → ∞. There
    it is the direction that stays away.

    **(A2) not neighbour-optimal.** With M the rows of the neighbours and N⁺ the higher-scoring of them, q + τ
    M⁺(−1_{N⁺}) has N⁺ alone as its nearest tokens (:func:`.better_directions.leaving_only_higher`); Lemma 9
    gives a finite R* with L(R* x*) ≤ L_α − E, E = w* e^{−R*θ*}/(2Tn). For δ = θ/(2B) and x ∈ D_δ(q),
    n (L(Rx) − L_α) ≥ −S_high e^{−R(θ−Bδ)}, which exceeds −nE for R > R_q = (log(2T S_high/w*) + R*θ*)/(θ − Bδ). So
    p̄(R), R ≥ R*, has norm at most R_q or is δ away from q; if the cone lies in D_δ(q) the norm stays bounded by R_q.

    **In float64.** The bounds on L(Rx) and L(Rx*) hold at every radius, without the factor 2: (A1), (B) as displayed,
    in (A2) n (L(Rx*) − L_α) ≤ S_low e^{−Rθ⁺} − w* e^{−Rθ*}/T with θ⁺ the least margin of x* over lower-scoring tokens.
    They are tried from R = 1/θ on; the comparison itself beyond R_q, as far as rounding leaves risks their size
    (:func:`.directional_risk.told_apart`). Where q is so close to an LMM direction that this R_q is out of reach,
    the exact construction, those bounds and the path remain.

    **The path** is searched in the given cone (either branch may occur) and in one so narrow that the branch is
    certain.
    """
    problem, q = case.problem, case.arrays["q"]
    found = under_test.direction(problem.keys, q)
    yield as_defined(found, problem.keys, q)
    alpha = found.best(problem.scores)
    costs = Costs.of(problem, alpha)
    cone = cone_of(case, found)
    binding = found.neighbours if found.unique else found.selected & (costs.gaps != 0)
    if not binding.any() or (found.unique and found.least is None):
        yield Claim("better-direction", Form.EXACT, -1.0, 0.0, EXACT, "no token was reported to be near q")
        return
    beaten = bool((costs.gaps[binding] > 0).all())
    narrow = narrow_cone(cone, found, costs, binding, lower=beaten)
    part = "(A2)" if not beaten else "(A1)" if found.unique else "(B)"
    if not beaten:
        better = leaving_only_higher(problem.keys, found, problem.scores, alpha, narrow.mu)
    elif found.unique:
        solution = under_test.max_margin(problem.exact_keys, alpha)
        better = (
            tilted_direction(problem.keys, found, solution.exact.p, narrow.mu)
            if isinstance(solution, MaxMargin)
            else None
        )
    else:
        better = selecting_best(problem.keys, found, alpha, narrow.mu)
    good = better is not None and (Beaten if beaten else Outdone).is_better(better, found, costs)
    claim = at_least("better-direction", Form.EXACT, float(good), 1.0, rounding=0.0, why=EXACT, points="direction")
    yield replace(claim, branch=f"case {part} of the proof")
    if better is None or not good:
        return
    region = (Beaten if beaten else Outdone).of(found, better, costs, binding, narrow)
    yield from region.claims(under_test, case.rng())
    yield from path_claims(region, cone, under_test, case.seed)
