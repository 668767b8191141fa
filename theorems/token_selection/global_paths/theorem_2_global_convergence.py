"""Theorem 2: from any start gradient descent diverges, and for one input it turns to the max-margin direction.

Main results: at every iterate of gradient descent, bounds on its climb along p_mm, on its norm (like log t) and, for
one input, on its correlation; gradient flow to norms of 1e6 with an a-priori O(‖p‖^{−2}) bound and its offset
predicted.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2, Appendix B.3; :mod:`.flow_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.numbers import MODERATE
from generators.problems import cases
from theorems.core.att_svm import certified
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import calls
from theorems.core.parts import Condition
from theorems.core.statement import always, statement
from theorems.token_selection.global_paths.descent_claims import descent_claims, starts_of
from theorems.token_selection.global_paths.flow_claims import flow_claims, flow_start
from theorems.token_selection.global_paths.normalized_claims import normalized_claims

ONE_INPUT = Condition("n = 1", lambda case: bool(case.problem.n == 1))
ASSUMPTIONS = ("well-behaved-loss", "equal-non-optimal-scores", "separable")


def _cases() -> SearchStrategy[Case]:
    """One input in half of the cases: the limit of the direction is claimed of these alone."""
    single = cases(assumptions=(*ASSUMPTIONS, "single-input"), large=MODERATE)
    return st.one_of(single, cases(assumptions=ASSUMPTIONS, large=MODERATE, n=(2, 4)))


@statement(
    "theorem-2",
    "Global convergence of gradient descent",
    source="Theorem 2, Appendix B.3",
    claims=always(
        "svm-is-optimal",
        "run-is-the-one-asked-for",
        "iterate-is-a-step",
        "normalized-run-is-the-one-asked-for",
        "normalized-iterate-is-a-step",
        "normalized-run-climbs",
        "climbs-to-max-margin",
        "climbs-like-log-t",
        "norm-grows-like-log-t",
        "steps-are-summable",
        "norm-diverges",
        "flow-is-the-one-asked-for",
        "flow-is-of-this-gradient",
        "flow-chords",
        "arc-climbs",
    )
    | dict.fromkeys(
        (
            "correlation-step",
            "correlation-lower-bound",
            "flow-correlation",
            "flow-offset-is-kept",
            "flow-offset-closed-form",
        ),
        ONE_INPUT,
    ),
    states=("norm-diverges", "flow-correlation"),
    premises=(
        "svm-is-optimal",
        "run-is-the-one-asked-for",
        "iterate-is-a-step",
        "normalized-run-is-the-one-asked-for",
        "normalized-iterate-is-a-step",
        "flow-is-the-one-asked-for",
        "flow-is-of-this-gradient",
        "flow-chords",
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=calls("every iterate of gradient descent on it; the limit is left to the reference", turn=6),
)
def theorem_2(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Under Assumptions A and B, if p_mm = p_mm(opt) exists, gradient descent with η ≤ 1/L_p from any p(0) has
    ‖p(t)‖ → ∞; if n = 1 also p(t)/‖p(t)‖ → p̄_mm. Write w = ⟨p, p_mm⟩, u = ⟨p, p̄_mm⟩, D = max‖k_i,opt − k_it‖.

    **Effective, any n.** Lemma 4: w(t+1) − w(t) ≥ (η/n) Σ_i |ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt) > 0. Moreover
    w(t) ≥ w(0) + log(1 + D²βt)/D² with β = η e^{−D‖p(0)‖} (1/n)Σ c_i gap_i/(4(T−1)), hence ‖p(t)‖ ≥ Θ w(t) → ∞.
    *Derivation.* −∇L = (1/n)Σ|ℓ'| gap_i s_i,opt Σ_t s_it (k_i,opt − k_it) has norm at most D times its lower bound of
    Lemma 4, so ‖p(t+1) − p(t)‖ ≤ D (w(t+1) − w(t)) and ‖p(t)‖ ≤ ‖p(0)‖ + D x_t, x_t = w(t) − w(0). As s(1 − s) ≥
    e^{−D‖p‖}/(4(T−1)) (:func:`.growth_bounds.log_rate`), x_{t+1} ≥ x_t + β e^{−D² x_t}. Then
    e^{D² x_{t+1}} ≥ e^{D² x_t}(1 + D²β e^{−D² x_t}) = e^{D² x_t} + D²β.

    **Exact.** The points of which all this is claimed are the run: p(0) is the start, and each iterate looked at is
    followed by p − η∇L(p) with the gradient under test, to rounding (:mod:`theorems.rounding.steps`). So are those of
    normalized gradient descent, whose every step of length s climbs at least s/D, as its direction is that of GD.

    **Effective, n = 1.** With λ = ‖p_mm‖ log(T−1) and Δ = p(t+1) − p(t): ⟨Δ, p̄_mm⟩ (‖p(t)‖ + λ) ≥ ⟨Δ, p(t)⟩ (Lemma 5),
    that is the paper's inequality with π_t = λ/‖p(t)‖. Summed:
    u(t) − u(0) ≥ ‖p(t)‖ − ‖p(0)‖ − λ log((‖p(t)‖+λ)/(‖p(0)‖+λ)) − Σ_{s<t} ‖Δ_s‖²/(2(‖p(s)‖+λ)).
    *Derivation.* ⟨Δ, p⟩ = (‖p⁺‖² − ‖p‖² − ‖Δ‖²)/2, and (‖p⁺‖² − ‖p‖²)/(2(‖p‖+λ)) ≥ ∫ r/(r+λ) dr from ‖p‖ to ‖p⁺‖,
    because r/(r+λ) ≤ r/(‖p‖+λ) where r ≥ ‖p‖ and the reverse where r ≤ ‖p‖. Lemma 6 bounds the sum:
    Σ‖Δ_s‖² ≤ 2η (L(p(0)) − L_opt), the only place where η ≤ 1/L_p enters. So the right side is ‖p(t)‖(1 − o(1)).

    **Limit**, along the gradient flow (the same curve in arc length) from starts near, far and opposite to p_mm. That
    it is one is claimed: it begins at the start, the gradient at its recorded points is the one under test, and pieces
    between them, integrated again by another method, end where it goes on (:mod:`.flow_chords`). The norm reaches 1e6
    (1e5 or 1e4 where float64 resolves no more), because w rises by at least s/D along an arc of length s. For n = 1,
    1 − cos ≤ 1 − √(1 − (B/ρ)²) at norm ρ‖p_mm‖ with B computed from the data and p(0) alone (:mod:`.flow_offset`); B
    grows like log ρ if an SVM-neighbour has no positive dual.

    **Sharp**, n = 1. The offset from the ray tends to q: G_S q = −log(λ/Σλ) on the support of the duals, that of the
    regularization path; orthogonally to span(G_S) it tends to a point that the rows outside S move away from p(0)'s.
    """
    problem = case.problem
    svm = yield from certified(problem, problem.optimal, under_test)
    rng = case.rng()
    starts, fractions = starts_of(case, svm, rng)
    yield from descent_claims(problem, under_test, svm, starts, fractions)
    if under_test.textbook_eps:
        # Such a kernel's gradient is rounding noise long before a limit is visible, and its direction sooner.
        return
    yield from normalized_claims(problem, under_test, svm, starts)
    yield from flow_claims(problem, under_test, svm, flow_start(case, svm, rng), rng)
