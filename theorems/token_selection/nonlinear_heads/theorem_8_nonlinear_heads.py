"""Theorem 8: with a nonlinear head and sets of optimal tokens the path turns to the solutions of ATT-SVM'.

Main results: explicit bounds on margin and on the distance to G_mm over a whole sublevel set; minimisers followed from
every solution; Theorem 1's sharp form where no other optimal token competes.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D.1, Theorem 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.case import Case
from generators.finding import Finding
from generators.optimal_set_cases import optimal_set_cases
from generators.optimal_sets import linear_mixing
from reference_attention.svm.max_margin_sets import InfeasibleSets
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import BELOW_ROUNDING
from theorems.core.statement import always, statement
from theorems.token_selection.global_paths.theorem_1_regularization_path import PATH_CLAIMS
from theorems.token_selection.nonlinear_heads.nonlinear_head import HeadedAttention
from theorems.token_selection.nonlinear_heads.set_constants import mixing_kappa
from theorems.token_selection.nonlinear_heads.set_path import path_to_the_set, sharp_claims
from theorems.token_selection.nonlinear_heads.set_sublevel import sublevel_claims

LARGEST_KAPPA = 1e5
"""Beyond it the path has not begun to turn within the radii that are followed."""


@statement(
    "theorem-8",
    "Nonlinear heads, sets of optimal tokens: the path goes to the solutions of ATT-SVM'",
    source="Appendix D, Theorem 8",
    claims=always("sublevel-margin", "sublevel-distance", "sublevel-distance-from-duals", "path-distance", "path-limit")
    | {name: f"no other optimal token competes; {name.when}" for name in PATH_CLAIMS},
    states=("path-limit",),
    premises=("path-is-stationary", "path-is-lowest"),
    assumptions=("well-behaved-loss", "mixing-hurts", "separable-optimal-sets"),
    cases=optimal_set_cases,
    kernel=BELOW_ROUNDING,
)
def theorem_8(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """L(p) = (1/n) Σ_i ℓ(Y_i ψ(X_iᵀs_i)) with Assumption D for sets O_i, and ATT-SVM' feasible with least norm 1/Θ and
    solutions G_mm. Then p̄(R) = argmin_{‖p‖≤R} L satisfies dist(p̄(R)/(RΘ), G_mm) → 0.

    Here D comes from Lemma 14 with ν_i, c0_i, c1_i; C0_i = c0_i min|ℓ'| and C1_i = c1_i max|ℓ'| over [ν_i − c1_i, ν_i].
    O_i = argmax_t γ_it; a head other than the linear one is in the arrays of the case. ρ = RΘ. (Lemma 14 asks that all
    optimal tokens of an input have the same features. D is tried in no other way.)

    **Effective.** κ = log Σ_i C1_i|Ō_i| + max_i log((1 + |O_i|)/C0_i), the sum over inputs with Ō_i ≠ ∅ (for singletons
    and a linear head at most Theorem 1's). For ρ > κ, every p with ‖p‖ ≤ R and L(p) ≤ L(R p̄_mm), p_mm ∈ G_mm, has

    - margin a = min_i max_{α∈O_i} min_{β∈Ō_i} (k_iα − k_iβ)·p ≥ ρ − κ;
    - cos(p, p_α) ≥ 1 − κ/ρ for the solution p_α of some choice α with Θ_α ≥ Θ − κ/R. Once ρ(1 − Θ₂/Θ) > κ, Θ₂ the
      margin of the best choice that is not optimal, these are the optimal ones: p_α ∈ G_mm, ‖p/ρ − p_α‖ ≤ ‖p_α‖
      √(2κ/ρ).

    *Derivation.* max_α min_β (k_α − k_β)·p = max_{O_i} k·p − max_{Ō_i} k·p =: a_i, and q_i = B/(A + B) with
    e^{max_O k·p} ≤ A ≤ |O_i| e^{max_O k·p}, likewise B. Hence e^{−max(a_i,0)}/(1 + |O_i|) ≤ 1/(1 + |O_i| e^{a_i}) ≤
    q_i ≤ |Ō_i| e^{−a_i}. By Lemma 14 and the mean value theorem C0_i q_i ≤ ℓ(Y_iψ) − ℓ(ν_i) ≤ C1_i q_i. At R p̄_mm
    every a_i ≥ ρ, so n(L − L_*) ≤ Σ C1_i|Ō_i| e^{−ρ}; at p, with a attained in input i, n(L − L_*) ≥ C0_i
    e^{−max(a,0)}/(1 + |O_i|). Together max(a, 0) ≥ ρ − κ > 0. Let α_i be the largest logit of p in O_i: p/a is
    feasible for the choice α, whose solution p_α is the projection of 0 onto a convex set: ⟨p/a, p_α⟩ ≥ ‖p_α‖². So a
    ≤ RΘ_α, which is Θ_α ≥ Θ − κ/R; if that exceeds Θ₂, α is an optimal choice, p_α ∈ G_mm. cos ≥ a‖p_α‖/‖p‖ ≥ (ρ −
    κ)/ρ as ‖p_α‖ ≥ 1/Θ; |p/ρ − p_α|² expands.

    **Effective, from the duals**, same points: ⟨p, p_α⟩/‖p_α‖² ≥ min_α Σ_j w_j log(C_j/w_j) − log n(L(p) −
    L_*) over the same choices α, w = λ/Σλ, C_iβ = |ℓ'(ν_i)| e_iβ e^{−b min(x,1)}/(|O_i| + |Ō_i|e^{−(ρ−κ)}), e_iβ = Σ_j
    |b_j|(least secant of φ_j) g_iβj, x = T e^{−(ρ−κ)}, b of :func:`theorems.rounding.approximate.bend` on [ν_i − c1_i,
    ν_i], 0 for convex ℓ. *Derivation.* s_β ≥ e^{−(k_α−k_β)·p}/(|O_i| + |Ō_i|e^{−a}) with α the largest logit; then
    Jensen as in Theorem 1.

    **Limit.** For *every* minimiser p̄(R), 1 − cos ≤ κ/ρ and ≤ (log n(L(p') − L_*) + ρ − D)/ρ, D the minimum above
    and p' any point of the sphere: O(1/ρ). Descended from each of G_mm to ρ = 10⁶(1 + κ): 1 − cos ≤ 10⁻⁶ there.

    **Sharp.** Where all other optimal tokens fall behind along p_mm (exactly decided) and p_mm has the lowest limit
    among G_mm, the path is Theorem 1's with costs c_iβ = |ℓ'(ν_i)| Σ_j |b_j| φ'_j(z*_ij) g_iβj over the number of
    optimal tokens that share α's key: same offset, same rate −2.
    """
    mixing = linear_mixing(case)
    if isinstance(mixing, Finding):
        raise Undecided("sublevel-margin", f"mixing-hurts: {mixing.evidence}", Form.EFFECTIVE)
    problem = case.problem
    sets = under_test.max_margin_sets(problem.keys, mixing.optimal, under_test.max_margin)
    if isinstance(sets, InfeasibleSets):
        raise Undecided("sublevel-margin", "ATT-SVM' was reported infeasible", Form.EFFECTIVE)
    linear = "head_features" not in case.arrays
    seen = under_test if linear else HeadedAttention(problem, mixing, under_test).as_implementation()
    kappa, rng = mixing_kappa(mixing, problem.loss), case.rng()
    yield from sublevel_claims(problem, mixing, sets, seen, kappa, rng)
    if under_test.textbook_eps:
        # Such a kernel's gradient is rounding noise at these radii.
        return
    if not kappa < LARGEST_KAPPA:
        why = f"κ = {kappa:.3g}: the path begins to turn only beyond RΘ = κ"
        raise Undecided("path-distance", why, Form.LIMIT)
    yield from path_to_the_set(problem, mixing, sets, seen, kappa)
    yield from sharp_claims(problem, mixing, sets, seen, kappa, rng)
