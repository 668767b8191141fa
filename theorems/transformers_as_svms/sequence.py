"""Several queries per input, causal or not: the regularization path turns to W^mm of all their constraints.

References: *Transformers as Support Vector Machines*, sequence outputs and causal attention (appendix); Theorem 1 of
*Max-Margin Token Selection*, with inputs of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.case import Case
from generators.sequence_assumptions import optimal_tokens_of
from generators.sequence_cases import sequence_cases
from reference_attention.floats import EPS
from reference_attention.svm.sequence_max_margin import SequenceInfeasible
from theorems.bounded import value_of
from theorems.core.claim import Claim, Ended, Form, Undecided, Verdict
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import BELOW_ROUNDING
from theorems.core.points import probe_points
from theorems.core.sequence_certificate import (
    choices_claim,
    parts_claim,
    solution_claim,
    unseen_claim,
)
from theorems.core.statement import always, statement
from theorems.transformers_as_svms.sequence_numbers import SequenceRows
from theorems.transformers_as_svms.sequence_points import risk_claims, sublevel_claims

UNSEEN_POINTS = 12


@statement(
    "tsvm-sequence",
    "Several queries per input, causal or masked: selection by one W^mm",
    source="T-SVM, sequence outputs (appendix)",
    claims=always(
        "parts-are-the-data",
        "svm-is-optimal",
        "any-tokens-are-decided",
        "excess-is-the-mean",
        "risk-floor",
        "risk-ceiling",
        "leading-term-from-below",
        "leading-term-from-above",
        "sublevel-margin",
        "sublevel-correlation",
        "sublevel-correlation-from-duals",
    )
    | {"unseen-tokens-do-not-matter": "where a query does not see every token"},
    states=("sublevel-correlation",),
    premises=(
        "parts-are-the-data",
        "svm-is-optimal",
        "any-tokens-are-decided",
        "excess-is-the-mean",
        "unseen-tokens-do-not-matter",
    ),
    assumptions=("well-behaved-loss", "sequence-given", "sequence-strict-optimum", "sequence-separable"),
    cases=sequence_cases,
    kernel=BELOW_ROUNDING,
    needs={
        "sequence-given": "it speaks of several queries",
        "sequence-separable": "W^mm exists only if it is",
        "sequence-strict-optimum": "κ is made of the gaps to a single best token",
        "well-behaved-loss": "κ is made of bounds of |ℓ'| > 0",
    },
)
def tsvm_sequence(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """L(W) = (1/nL) Σ_i Σ_k ℓ(Y_ik vᵀ X_iᵀ softmax(X_i W z_ik)), the softmax over the tokens that query k of input i
    sees (causal: t ≤ k). Let Assumption A hold, one of these tokens be strictly best for every (i, k), and
    (x_iα_ik − x_it)ᵀ W z_ik ≥ 1, for all i, k and t ≠ α_ik = opt that it sees, be feasible; W^mm is its solution of
    least ‖W‖_F. The path W̄(R) = argmin_{‖W‖_F ≤ R} L(W) has W̄(R)/R → W^mm/‖W^mm‖_F.

    **Exact.** Each (i, k) is an input with the keys vec(x_it z_ikᵀ) of the tokens that it sees. A query that sees one
    token has a constant risk and no constraint. Two queries with different numbers of tokens are in different parts,
    and L is the mean over all (i, k); a token that is copied to make them alike would take weight, so none is. What a
    query does not see changes nothing of its risk. W^mm is certified over Q on the rows of all parts together, and so
    is the answer for other tokens: for every choice they are separable where the rows (x_iα − x_it) z_ikᵀ are linearly
    independent, which nT(T−1) ≤ d² does not decide.

    **Effective.** M = nL queries, N constraints, h their margins, m = min h, Γ the gaps γ_α − γ_t, c_max and c_min
    bounds of |ℓ'| on the range of scores. At every W

        c_min Γ_min e^{−max(m, 0)}/2 ≤ M(L(W) − L_⋆) ≤ c_max Σ Γ_t e^{−h_t}.

    *Derivation.* A query loses between c_min δ and c_max δ, δ = Σ s_t Γ_t, by the mean value theorem. s_t ≤ e^{−h_t};
    and where h = m, 1 − s_α ≥ e^{−m}/(1 + e^{−m}) ≥ e^{−max(m, 0)}/2, δ ≥ Γ_min (1 − s_α).
    With κ = log(2N c_max Γ_max / (c_min Γ_min)) and ρ = R/‖W^mm‖_F > κ, every W with ‖W‖_F ≤ R and L(W) ≤ L(R W̄^mm) has
    m(W) ≥ ρ − κ and cos(W, W^mm) ≥ 1 − κ/ρ: the two bounds at R W̄^mm, where h ≥ ρ, and at W; then W/m is feasible and
    W^mm the projection of 0. This is Theorem 1 of the predecessor, which does not use that inputs have one length. Nor
    does its bound from the duals, with x = (T−1)e^{−(ρ−κ)} of the longest input:
    ⟨W, W^mm⟩/‖W^mm‖² ≥ D − log1p(x) − b min(x, 1) − log M(L(R W̄^mm) − L_⋆).

    **Sharp.** Along the ray, with c_t = |ℓ'(γ_α)| Γ_t, x = Σ_t e^{−h_t} of a query and Γ its widest gap,

        Σ c_t e^{−h_t − b min(x, 1)}/(1 + x) ≤ M(L − L_⋆) ≤ Σ c_t e^{−h_t + Γ min(x, 1)},

    so that log M(L(R W̄^mm) − L_⋆) + ρ → log Σ c_t over the neighbours of all queries. *Derivation.* s_t =
    e^{−h_t}/(1 + x);
    δ ≤ Γ min(x, 1); the left bound is that of Theorem 1, and |ℓ''| ≤ |ℓ'| gives ℓ(γ − δ) − ℓ(γ) ≤ |ℓ'(γ)| δ e^δ.
    """
    data = case.sequence
    assert data is not None, "the statement assumes sequence-given"
    rng, reported = case.rng(), under_test.sequence_parts(data)
    parts = parts_claim(data, reported)
    yield parts
    points = probe_points(rng, case.problem, m=UNSEEN_POINTS)
    unseen = unseen_claim(data, under_test, points, rng)
    if unseen is not None:
        yield unseen
    if parts.verdict is Verdict.FALSIFIED:
        raise Ended(parts.name)
    alpha = optimal_tokens_of(data)
    svm = under_test.sequence_max_margin([part.problem.exact_keys for part in reported], alpha)
    if isinstance(svm, SequenceInfeasible):
        raise Undecided("svm-is-optimal", "ATT-SVM(opt) was called infeasible")
    solution = solution_claim(data, alpha, svm)
    yield solution
    yield choices_claim(data, under_test, rng)
    if solution.verdict is Verdict.FALSIFIED:
        raise Ended(solution.name)
    rows = SequenceRows(data.parts, under_test, reported)
    yield from risk_claims(rows, svm, case.problem, rng)
    kappa = float(value_of(rows.log_kappa))
    if not kappa < 1 / EPS:
        why = f"κ = {kappa:.3g}: at RΘ = κ the rounding of a logit is larger than a logit"
        raise Undecided("sublevel-margin", why, Form.EFFECTIVE)
    yield from sublevel_claims(rows, svm, rng)
