"""Theorem 1: the regularization path turns to the max-margin direction of the optimal tokens.

Main results: an explicit bound on cos and margin over a whole sublevel set; the path itself at radii up to 1e6 with
its rate −2; its offset from the ray of p_mm, at finite radius and in closed form.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1, Appendix B.2; :mod:`.path_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.numbers import MODERATE
from generators.problems import cases
from reference_attention.floats import EPS
from theorems.core.att_svm import certified
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import BELOW_ROUNDING
from theorems.core.statement import always, statement
from theorems.token_selection.global_paths.followed_path import Sphere
from theorems.token_selection.global_paths.minimised_path import MINIMISED_CLAIMS, minimised_path
from theorems.token_selection.global_paths.path_claims import PATH_CLAIMS, Followed, path_claims
from theorems.token_selection.global_paths.path_constants import (
    Constraints,
    exact_to_rounding,
    log_kappa,
)
from theorems.token_selection.global_paths.path_offset import Reduced, tangent_basis
from theorems.token_selection.global_paths.sublevel_claims import sublevel_claims

PATH_RADII = (1e2, 1e3, 1e4, 1e5, 1e6)
"""RΘ of the path."""
LARGEST_KAPPA = 1e5
"""Beyond it the path of PATH_RADII has not begun to turn."""
LARGEST_ROUNDING = 1e-3
"""Errors of an exponent beyond it leave no digits of the path; it bounds radii where ‖p_mm‖ is large."""


ASSUMPTIONS = ("well-behaved-loss", "strict-optimum", "separable")


def _cases() -> SearchStrategy[Case]:
    return cases(assumptions=ASSUMPTIONS, large=MODERATE)


@statement(
    "theorem-1",
    "Regularization path: p̄(R)/R → p̄_mm",
    source="Theorem 1, Appendix B.2",
    claims=always("svm-is-optimal", "sublevel-margin", "sublevel-correlation", "sublevel-correlation-from-duals")
    | PATH_CLAIMS
    | MINIMISED_CLAIMS,
    states=("path-correlation",),
    premises=(
        "svm-is-optimal",
        "path-is-stationary",
        "path-is-lowest",
        "minimised-path-is-on-the-sphere",
        "minimised-path-is-lowest",
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=BELOW_ROUNDING,
)
def theorem_1(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Under Assumption A, with one strictly best token per input and a solution p_mm of ATT-SVM(opt), the
    regularization path p̄(R) = argmin_{‖p‖≤R} L(p) satisfies p̄(R)/R → p̄_mm. Θ = 1/‖p_mm‖, ρ = RΘ.

    **Effective.** Let κ = log(2n(T−1) c_max Γ_max / (c_min Γ_min)) with c_max, c_min bounds of |ℓ'| on the score
    range and Γ_max, Γ_min the extreme gaps γ_i,opt − γ_it. For ρ > κ, every p with ‖p‖ ≤ R and L(p) ≤ L(R p̄_mm) has
    all margins (k_i,opt − k_it)·p ≥ ρ − κ and cos(p, p_mm) ≥ 1 − κ/ρ.
    *Derivation.* Put δ_i = Σ_t s_it (γ_i,opt − γ_it); the mean value theorem gives
    c_min δ_i ≤ ℓ(γ_i,opt − δ_i) − ℓ(γ_i,opt) ≤ c_max δ_i. At R p̄_mm every margin is ≥ ρ, so s_it ≤ e^{−ρ} and
    L − L_opt ≤ c_max Γ_max (T−1) e^{−ρ}. At p let a be the smallest margin, in input i: then
    1 − s_i,opt ≥ e^{−a}/(1 + e^{−a}) ≥ e^{−max(a,0)}/2, so L − L_opt ≥ c_min Γ_min e^{−max(a,0)}/(2n). Together
    max(a, 0) ≥ ρ − κ > 0, hence a ≥ ρ − κ. Now p/a is feasible for the SVM, and p_mm is the projection of 0 onto
    the feasible set: ⟨p/a, p_mm⟩ ≥ ‖p_mm‖². So cos ≥ a‖p_mm‖/‖p‖ ≥ a/ρ ≥ 1 − κ/ρ.

    **Effective, from the duals.** With c_j = |ℓ'(γ_i,opt)|(γ_i,opt − γ_it), w_j = λ_j/Σλ, x = (T−1)e^{−(ρ−κ)} and b of
    :func:`.path_constants.bend`, which is 0 where ℓ is convex:
    ‖p‖Θ cos(p, p_mm) ≥ Σ_j w_j log(c_j/w_j) − log1p(x) − b min(x, 1) − log n(L(R p̄_mm) − L_opt).
    *Derivation.* Input i loses δ_i ≤ Γ_i min(x, 1), Γ_i the range of its scores, so n(L − L_opt) ≥ Σ c_j s_j e^{−b
    min(x,1)} (convexity, or :meth:`.loss.Loss.steepening`), and s_j ≥ e^{−a_j}/(1 + x). Jensen's inequality: log Σ c_j
    e^{−a_j} ≥ −Σ w_j a_j + Σ w_j log(c_j/w_j), and Σ λ_j a_j = ⟨p_mm, p⟩, Σλ = ‖p_mm‖² are KKT.

    **Limit.** On the path, 1 − cos ≤ (F_ρ(y') − D)/ρ for *every* tangent y', D = Σ w_j log(c_j/w_j) (or the minimum
    of F_∞, which is the largest D over all duals): the Jensen step above on the sphere gives F_ρ(y) ≥ D + ρ(1 − cos)
    and the path minimises F_ρ (:mod:`.path_offset`). With y' near the minimiser this is |o|²/(2ρ²)(1 + o(1)).
    If some SVM-neighbour has dual zero in every dual solution there is no minimiser of F_∞; then y' = y_S + h log ρ,
    h·ĝ_j = 0 on the other neighbours and ≥ 1 on these, shows |y_ρ|² ≤ |y_S + h log ρ|² + O(1): 1 − cos = O((log ρ/ρ)²).
    Otherwise log(1 − cos) falls with slope −2 in log ρ.

    **Sharp.** The tangential part of p̄(R) is argmin F_ρ at every radius; as ρ → ∞ it tends to argmin F_∞, for
    linearly independent neighbours with positive duals G⁺ log(c/λ) less its component along p_mm, with an error
    that is computed, O(1/ρ), and whose own first term is −H⁻¹y/ρ.
    """
    problem = case.problem
    svm = yield from certified(problem, problem.optimal, under_test)
    constraints = Constraints.of(problem, svm)
    basis = tangent_basis(svm.direction)
    carried = log_kappa(problem)
    kappa = float(carried.value)
    if not kappa < 1 / EPS:
        why = f"κ = {kappa:.3g}: at RΘ = κ the rounding of a logit is larger than a logit"
        raise Undecided("sublevel-margin", why, Form.EFFECTIVE)
    yield from sublevel_claims(case, under_test, constraints, basis, svm, carried)
    if under_test.textbook_eps:
        # Such a kernel's gradient is rounding noise at these radii.
        return
    if not kappa < LARGEST_KAPPA:
        why = f"κ = {kappa:.3g}: the path begins to turn only beyond RΘ = κ, out of reach of {PATH_RADII[-1]:g}"
        raise Undecided("path-correlation", why, Form.LIMIT)
    begun = [rho for rho in PATH_RADII if exact_to_rounding(problem, kappa, rho)]
    # In one dimension the path is the ray whatever the rounding.
    radii = [
        rho for rho in begun if problem.d == 1 or constraints.exponent_rounding(rho * svm.direction) < LARGEST_ROUNDING
    ]
    if not radii:
        why = f"‖p_mm‖ = {svm.norm:.3g}: rounding of the logits at RΘ = {begun[0]:g} hides the path"
        raise Undecided("path-correlation", why, Form.LIMIT)
    followed = [
        Followed.at(Sphere(problem, svm, basis, Reduced.at(constraints, basis, rho), under_test), constraints)
        for rho in radii
    ]
    yield from path_claims(followed, constraints, basis, svm, case.rng())
    yield from minimised_path(followed, under_test)
