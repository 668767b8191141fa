"""Attention that selects exactly τ tokens: the optimal weights for a head that prefers mixtures.

References: *Transformers as Support Vector Machines*, Section 6, the lemma on attention that selects exactly τ tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from flint import fmpq
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.margin_assumptions import Vector
from generators.mixing_assumptions import exact_scores, penalty_of
from generators.mixing_cases import mixing_cases
from reference_attention.optimal_attention import optimal_attention
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import KernelUse
from theorems.core.parts import Condition
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.transformers_as_svms.attention_claims import RISK_IS_QUADRATIC, attention_claim, quadratic_risk_claim

NO_ATTENTION = KernelUse(False, "is about the optimal weights on the simplex only; it calls no attention kernel")


def _condition_holds(case: Case) -> bool:
    return any(size is not None for size in sizes_by_condition(case))


IS_OPTIMAL = premise("attention-is-optimal")
SUFFICES = stated_claim(
    "condition-suffices", when=Condition("where the paper's condition holds for some τ < T", _condition_holds)
)
SIZE = sharper("support-size")


def _cases() -> SearchStrategy[Case]:
    return mixing_cases()


@statement(
    "tsvm-exact-support",
    "Attention that selects exactly τ tokens",
    source="T-SVM, Section 6 (lemma)",
    claims=(IS_OPTIMAL, RISK_IS_QUADRATIC, SUFFICES, SIZE),
    assumptions=("queries-given", "quadratic-head", "orthonormal-tokens"),
    cases=_cases,
    kernel=NO_ATTENTION,
    needs={
        "queries-given": "tokens are read from data with queries",
        "quadratic-head": "the lemma's condition bounds λ, which only a quadratic head has",
    },
)
def tsvm_exact_support(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the tokens of an input be orthonormal, h(x) = vᵀx − λ‖x‖² with λ > 0, ℓ(u) = −u and Y = 1.

    Sort the scores γ_t = vᵀx_t, γ_1 ≥ … ≥ γ_T, and put γ^gap_t = γ_t − γ_{t+1}. If

        Σ_{t<τ} t γ^gap_t < 2λ < τ γ^gap_τ,

    the weights s⋆ that minimise the risk over the simplex have exactly τ nonzeros.

    **Exact.** h(Xᵀs) = γᵀs − λ‖s‖², so s⋆ is the projection of γ/(2λ) on the simplex. Let μ and ν_t ≥ 0 be its
    multipliers, with ν_t s⋆_t = 0. For every s of sum 1

        φ(s) − φ(s⋆) = Σ_t ν_t s_t + λ‖s − s⋆‖²,    φ(s) = −h(Xᵀs),

    which proves that s⋆ is the only minimiser. *Derivation.* ∂φ/∂s_t = −γ_t + 2λs⋆_t = ν_t − μ at s⋆; φ is quadratic
    with the Hessian 2λI, and Σ(s − s⋆) = 0.

    **Sharper.** s⋆ has exactly τ nonzeros *if and only if*

        Σ_{t<τ} t γ^gap_t < 2λ ≤ Σ_{t≤τ} t γ^gap_t,

    where the right side is ∞ for τ = T. *Derivation.* Σ_{t<τ} t γ^gap_t = Σ_{t<τ} (γ_t − γ_τ). If the τ largest scores
    have weight, τμ = Σ_{t≤τ} γ_t − 2λ and s⋆_t = (γ_t − μ)/(2λ). Token τ has positive weight iff γ_τ > μ, which is the
    left inequality; token τ + 1 has none iff γ_{τ+1} ≤ μ, which is the right inequality. Exactly one τ satisfies both,
    as the sums do not decrease with τ. The paper's condition requires the last term τ γ^gap_τ of the right sum to
    exceed 2λ, although it suffices that the whole sum does: the condition is sufficient, not necessary, and needs τ <
    T.

    All claims are decided over the rationals for the tokens as given: the KKT conditions with the gradient of h at
    Xᵀs⋆, and the identity at weights of sum 1 with entries of either sign.
    """
    data, lam = case.queried, penalty_of(case)
    assert data is not None, "the statement assumes queries-given"
    attention = under_test[optimal_attention](exact_scores(data), lam)
    yield attention_claim(IS_OPTIMAL, data, lam, attention)
    yield quadratic_risk_claim(data, lam, attention, case.rng())
    sizes = [sum(w != 0 for w in row) for row in attention.weights]
    by_condition = sizes_by_condition(case)
    if any(size is not None for size in by_condition):
        wrong = [i for i, size in enumerate(by_condition) if size is not None and size != sizes[i]]
        yield _claim(SUFFICES, wrong, sizes, by_condition)
    exactly = [_only_size(row, lam) for row in exact_scores(data)]
    wrong = [i for i, size in enumerate(exactly) if size != sizes[i]]
    yield _claim(SIZE, wrong, sizes, exactly)


def _sums(scores: Vector) -> Vector:
    """Return the sums Σ_{t≤τ} t γ^gap_t, τ = 1, …, T − 1, of the gaps γ^gap_t between consecutive sorted scores."""
    gaps, total = _gaps(scores), fmpq(0)
    sums = []
    for t, gap in enumerate(gaps, start=1):
        total += t * gap
        sums.append(total)
    return sums


def _gaps(scores: Vector) -> Vector:
    """Return the gaps γ^gap_1, …, γ^gap_{T−1} between consecutive sorted scores."""
    ordered = sorted(scores, reverse=True)
    return [a - b for a, b in pairwise(ordered)]


def sizes_by_condition(case: Case) -> list[int | None]:
    """Return for each input the τ for which the paper's condition holds, or None if it holds for no τ."""
    assert case.queried is not None
    twice, sizes = 2 * penalty_of(case), []
    for scores in exact_scores(case.queried):
        before = [fmpq(0), *_sums(scores)[:-1]]
        pairs = enumerate(zip(before, _gaps(scores), strict=True), start=1)
        sizes.append(next((tau for tau, (low, gap) in pairs if low < twice < tau * gap), None))
    return sizes


def _only_size(scores: Vector, lam: fmpq) -> int | None:
    """Return the τ with Σ_{t<τ} t γ^gap_t < 2λ ≤ Σ_{t≤τ} t γ^gap_t, or None if not exactly one τ satisfies this."""
    sums = _sums(scores)
    low, high = [fmpq(0), *sums], [*sums, None]
    fit = [
        tau
        for tau, (a, b) in enumerate(zip(low, high, strict=True), start=1)
        if a < 2 * lam and (b is None or 2 * lam <= b)
    ]
    return fit[0] if len(fit) == 1 else None


def _claim(name: str, wrong: list[int], sizes: list[int], expected: list[int | None]) -> Claim:
    detail = "" if not wrong else f"input {wrong[0]}: {sizes[wrong[0]]} nonzero weights instead of {expected[wrong[0]]}"
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, detail)
