"""Optimal tokens minimise the risk: lower and upper bounds of L(W) − L_⋆ for every W, where L_⋆ is the infimum of L.

References: *Transformers as Support Vector Machines*, Lemma 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.margin_assumptions import difference_rows, is_farkas_proof
from generators.numbers import one_in
from generators.query_cases import query_cases
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import log_excess_risk
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.bounded import exact, in_floats, with_rounding
from theorems.core.claim import Claim, Ended, Form, Verdict, at_least
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.parts import Condition
from theorems.core.points import affordable, climb, probe_points
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL, svm_claim
from theorems.core.tolerances import EXACT
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.excess_risk import log_excess_of
from theorems.rounding.risk_under_test import risk_of
from theorems.transformers_as_svms.floor_bounds import (
    EXCESS_AT_LEAST,
    EXCESS_AT_MOST,
    LEAST_BY_MARGINS,
    LEAST_BY_SLOPES,
    MOST_BY_MARGINS,
    MOST_BY_SLOPES,
    FloorBounds,
    smallest_gaps,
)

POINTS = 120
RADII = (0.1, 1.0, 10.0, 1e2, 1e3, 1e6)
"""The values of R at which R W^mm is evaluated."""
FEASIBLE = Condition(
    "where ATT-SVM(opt) is feasible",
    lambda case: not isinstance(max_margin(case.problem.exact_keys, case.problem.optimal), Infeasible),
)
INFEASIBLE = "where ATT-SVM(opt) is infeasible"


RISK_AT_LEAST = stated_claim("risk-at-least")
RISK_AT_MOST = sharper("risk-at-most")
RAY_AT_MOST = stated_claim("excess-on-the-ray-at-most", when=FEASIBLE)
RAY_AT_LEAST = sharper("excess-on-the-ray-at-least", when=FEASIBLE)
INFEASIBILITY = premise("infeasibility-is-proven", when=INFEASIBLE)
STAYS_AWAY = sharper("excess-stays-away", when=INFEASIBLE)


@st.composite
def _cases(draw: DrawFn) -> Case:
    """Draw a case that is separable by construction or, in a third of the draws, an inseparable case.

    An inseparable case has one input twice, the second time with its query's sign reversed.
    """
    case = draw(query_cases())
    if not draw(one_in(3)):
        return case
    data = case.queried
    assert data is not None
    queries = np.concatenate([data.queries, -data.queries[:1] * draw(st.sampled_from((1.0, 2.0, 0.5)))])
    X, Y = np.concatenate([data.X, data.X[:1]]), np.concatenate([data.Y, data.Y[:1]])
    contradicted = QueryDataset(X, queries, Y, data.v, data.loss)
    return case.replace(problem=contradicted.problem, queried=contradicted)


@statement(
    "tsvm-risk-floor",
    "Optimal tokens minimise the risk",
    source="T-SVM, Lemma 1",
    claims=(
        RISK_AT_LEAST,
        RISK_AT_MOST,
        EXCESS_AT_LEAST,
        LEAST_BY_SLOPES,
        LEAST_BY_MARGINS,
        EXCESS_AT_MOST,
        MOST_BY_SLOPES,
        MOST_BY_MARGINS,
        SVM_IS_OPTIMAL.only(FEASIBLE),
        RAY_AT_MOST,
        RAY_AT_LEAST,
        INFEASIBILITY,
        STAYS_AWAY,
        *QUERY_CLAIMS,
    ),
    assumptions=("queries-given", "well-behaved-loss", "strict-optimum"),
    cases=_cases,
    kernel=calls("its risk, between both bounds at every point", turn=8, differentiates=False),
    needs={"well-behaved-loss": "c_min and c_max bound |ℓ'|", "strict-optimum": "opt is one token of each input"},
)
def tsvm_risk_floor(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and one token of each input be strictly best; L_⋆ = (1/n) Σ_i ℓ(γ_i,opt).

    Then L(W) > L_⋆ for every W. For every W with all (x_i,opt − x_it)ᵀ W z_i ≥ 1, L(RW) → L_⋆ as R → ∞.

    **Effective.** Let δ_i = Σ_t s_it (γ_i,opt − γ_it) > 0, and let c_i be the least and C_i the largest |ℓ'| between
    the scores of input i. At every W, by the mean value theorem on [γ_i,opt − δ_i, γ_i,opt],

        Σ c_i δ_i ≤ n (L(W) − L_⋆) ≤ Σ C_i δ_i.

    **Sharp** as δ → 0. Let κ_i be the steepening of ℓ between the scores of input i
    (:meth:`reference_attention.loss.Loss.steepening`), and M0_i the Lipschitz constant of ℓ' on this range. At
    every W

        Σ |ℓ'(γ_i,opt)| δ_i e^{−κ_i δ_i/2} ≤ n (L(W) − L_⋆) ≤ Σ (|ℓ'(γ_i,opt)| δ_i + M0_i δ_i²/2).

    **By margins.** Let h_it = (x_i,opt − x_it)ᵀ W z_i, m_i = min_t h_it, and Γ_i the least gap γ_i,opt − γ_it. As s_it
    ≤ e^{−h_it}, and 1 − s_i,opt = o/(1 + o) with o = Σ_{t≠opt} e^{−h_it} ≥ e^{−m_i}, for each i

        c_i Γ_i / (1 + e^{m_i}) ≤ n (L(W) − L_⋆) ≤ Σ_j C_j Σ_{t≠opt} (γ_j,opt − γ_jt) e^{−h_jt}.

    For the input of the least margin m, the lower bound is at least c_min Γ_min e^{−max(m,0)}/2. The upper bound is at
    most N c_max Γ_max e^{−m}, N = n(T−1).

    **Limit.** m(R W^mm) = R, so n (L(R W^mm) − L_⋆) is within [c_min Γ_min / (1 + e^R), N c_max Γ_max e^{−R}]: its
    logarithm is −R up to a constant, at radii up to 10⁶.

    **Only if separable.** If ATT-SVM(opt) is infeasible, Σ λ_it (x_i,opt − x_it) z_iᵀ = 0 for some nonzero λ ≥ 0. So
    every W has an h_it ≤ 0, and n (L(W) − L_⋆) ≥ min_i c_i Γ_i/2. Hence inf L = L_⋆ if and only if opt is separable.

    Risks are compared both as numbers, as kernels compute them, and as logarithms, which keep the relative accuracy of
    n (L − L_⋆) even if L − L_⋆ is tiny.
    """
    yield from premises(query_claims(case, under_test))
    problem = case.problem
    solution = under_test[max_margin](problem.exact_keys, problem.optimal)
    svm = None if isinstance(solution, Infeasible) else solution
    judged = (
        _infeasibility_claim(case, solution)
        if isinstance(solution, Infeasible)
        else svm_claim(problem, problem.optimal, solution)
    )
    yield judged
    if judged.verdict is Verdict.FALSIFIED:
        raise Ended(judged.name)

    rng = case.rng()
    probes = probe_points(rng, problem, None if svm is None else svm.p, m=affordable(problem, POINTS))
    points = climb(rng, probes, lambda p: _violation(problem, under_test, p))
    yield from _plain(problem, under_test, points)
    if under_test.textbook_eps:
        return
    yield from _in_logarithms(problem, under_test, points, separable=svm is not None)
    if svm is not None:
        yield from _on_the_ray(problem, under_test, svm)


def _infeasibility_claim(case: Case, infeasible: Infeasible) -> Claim:
    """Claim, over the rationals, that the multipliers returned with ``infeasible`` prove that no W separates opt."""
    rows = difference_rows(case.problem.exact_keys, case.problem.optimal)
    right = is_farkas_proof(rows, infeasible.exact)
    detail = f"{len(infeasible.exact)} multipliers" if right else "the multipliers do not add up to zero"
    return Claim(INFEASIBILITY, Form.EXACT, 0.0 if right else -1.0, 0.0, EXACT, detail)


def _violation(
    problem: Problem, under_test: Implementation, points: Float64[np.ndarray, "k d"]
) -> Float64[np.ndarray, "k"]:
    """Return by how much the implementation's log(n(L − L_⋆)) is outside the statement's bounds; negative if inside."""
    with in_floats():
        bounds = FloorBounds(AttentionAt(problem, points))
        theirs = under_test[log_excess_risk](problem.keys, problem.scores, problem.loss, points, problem.optimal)
        excess = theirs[1] + np.log(problem.n)
        below = [np.max(b, axis=-1) - excess for b in bounds.lower.values()]
        above = [excess - np.min(b, axis=-1) for b in bounds.upper.values()]
        return np.asarray(np.max(np.stack([*below, *above]), axis=0))


def _plain(problem: Problem, under_test: Implementation, points: Float64[np.ndarray, "k d"]) -> Iterator[Claim]:
    at = AttentionAt(problem, points, under_test.textbook_eps)
    risk = risk_of(at, under_test, RISK_AT_LEAST)
    floor = np.mean(problem.loss.value(exact(problem.scores.max(axis=1))), axis=-1)
    bounds = FloorBounds(at)
    least, most = (np.exp(b[:, 0]) / problem.n for b in (bounds.lower[EXCESS_AT_LEAST], bounds.upper[EXCESS_AT_MOST]))
    yield at_least(RISK_AT_LEAST, Form.EFFECTIVE, risk, floor + least)
    yield at_least(RISK_AT_MOST, Form.EFFECTIVE, floor + most, risk)


def _in_logarithms(
    problem: Problem, under_test: Implementation, points: Float64[np.ndarray, "k d"], *, separable: bool
) -> Iterator[Claim]:
    bounds, n = FloorBounds(AttentionAt(problem, points)), np.log(exact(problem.n))
    excess = (log_excess_of(under_test, problem, points, EXCESS_AT_LEAST) + n)[:, None]
    for name, bound in bounds.lower.items():
        yield at_least(name, _form(name), excess, bound)
    for name, bound in bounds.upper.items():
        yield at_least(name, _form(name), bound, excess)
    if not separable:
        yield at_least(STAYS_AWAY, Form.EFFECTIVE, excess, np.min(smallest_gaps(problem)) - np.log(exact(2.0)))


def _form(name: str) -> Form:
    return Form.SHARP if name in (LEAST_BY_SLOPES, MOST_BY_SLOPES) else Form.EFFECTIVE


def _on_the_ray(problem: Problem, under_test: Implementation, svm: MaxMargin) -> Iterator[Claim]:
    radii = np.array(RADII)
    points: Any = radii[:, None] * with_rounding(svm.p)
    excess = log_excess_of(under_test, problem, points, RAY_AT_MOST) + np.log(exact(problem.n))
    costs = FloorBounds(AttentionAt(problem, points)).log_costs
    most = np.log(exact(problem.n * (problem.T - 1))) + np.max(costs) - radii
    least = np.min(smallest_gaps(problem)) - np.logaddexp(0.0, exact(radii))
    yield at_least(RAY_AT_MOST, Form.LIMIT, most, excess, points="radius")
    yield at_least(RAY_AT_LEAST, Form.LIMIT, excess, least, points="radius")
