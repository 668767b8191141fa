"""Theorem 8: with a nonlinear head and sets of optimal tokens the path turns to the solutions of ATT-SVM'.

Main results: for every p of norm at most R whose risk is at most that of R p̄_mm, explicit bounds on the margin and on
the distance to the set G_mm of solutions; minimisers followed from every solution; the sharp form of Theorem 1 where
the weight of all other optimal tokens vanishes.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D.1, Theorem 8.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.linalg import norm

from generators.case import Case
from generators.finding import Finding
from generators.optimal_set_cases import optimal_set_cases
from generators.optimal_sets import LinearMixing, linear_mixing
from reference_attention.floats import EPS
from reference_attention.loss import Loss
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import max_margin
from reference_attention.svm.max_margin_sets import InfeasibleSets, MaxMarginSets, max_margin_sets
from theorems.bounded import exact, possibly_at_least, with_rounding
from theorems.core.claim import Claim, Form, Refuted, Undecided, at_least
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.nonlinear_head import HeadedAttention
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.curves.constraints import EXPONENT_ROUNDING
from theorems.rounding.approximations import bend
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.global_paths.theorem_1_regularization_path import (
    PATH_CLAIMS,
    PATH_CORRELATION,
    on_the_path,
)
from theorems.token_selection.nonlinear_heads.optimal_set_points import (
    excess_of,
    excess_rounding,
    log_rounding,
    log_slope_bounds,
    log_token_costs,
    minimisers,
    path_to_the_lowest,
    sublevel_points,
)

LARGEST_KAPPA = 1e5
"""The largest κ (:func:`mixing_kappa`) at which the path turns to its limit within the radii in use."""
SUBLEVEL_RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""The radii R of the sublevel sets as values of RΘ/κ, with the margin Θ of p̄_mm and the κ of :func:`mixing_kappa`."""
RADII = (1e2, 1e4, 1e6)
"""The radii R of the spheres on which minimisers are computed, as values of RΘ/(1 + κ)."""
REACHED = 1e-6
"""The bound of 1 − cos that is claimed at the last radius, where the proven bound κ/(RΘ) is smaller."""

LEAST = premise("solutions-are-all-of-least-norm")
MARGIN = sharper("sublevel-margin")
DISTANCE = sharper("sublevel-distance")
FROM_DUALS = sharper("sublevel-distance-from-duals")
PATH_DISTANCE = sharper("path-distance")
PATH_LIMIT = stated_claim("path-limit")
ALONE = "no other optimal token competes"
"""The condition under which the claims of Theorem 1 on the path are made: it then has one limit and a known offset."""
SHARP_CLAIMS = tuple(
    sharper(name, when=f"{ALONE}; {name.when}") if name == PATH_CORRELATION else name.only(ALONE)
    for name in PATH_CLAIMS
)


@statement(
    "theorem-8",
    "Nonlinear heads, sets of optimal tokens: the path goes to the solutions of ATT-SVM'",
    source="Appendix D, Theorem 8",
    claims=(LEAST, MARGIN, DISTANCE, FROM_DUALS, PATH_DISTANCE, PATH_LIMIT, *SHARP_CLAIMS),
    assumptions=("well-behaved-loss", "mixing-hurts", "separable-optimal-sets"),
    cases=optimal_set_cases,
    kernel=BELOW_ROUNDING,
)
def theorem_8(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let L(p) = (1/n) Σ_i ℓ(Y_i ψ(X_iᵀs_i)) with Assumption D for sets O_i.

    Let ATT-SVM' be feasible with least norm 1/Θ and solutions G_mm. Then p̄(R) = argmin_{‖p‖≤R} L satisfies
    dist(p̄(R)/(RΘ), G_mm) → 0.

    Here D comes from Lemma 14 with ν_i, c0_i, c1_i; C0_i = c0_i min|ℓ'| and C1_i = c1_i max|ℓ'| over [ν_i − c1_i, ν_i].
    O_i = argmax_t γ_it are the optimal tokens of input i, Ō_i the others, q_i = Σ_{t∈Ō_i} s_it their softmax weight and
    L_* = (1/n) Σ_i ℓ(ν_i); a head other than the linear one is in the arrays of the case. ρ = RΘ. (Lemma 14 requires
    that all optimal tokens of an input have the same features. Assumption D is checked only through Lemma 14.)

    **Effective.** κ = log Σ_i C1_i|Ō_i| + max_i log((1 + |O_i|)/C0_i), the sum over inputs with Ō_i ≠ ∅ (for singletons
    and a linear head at most Theorem 1's). For ρ > κ, every p with ‖p‖ ≤ R and L(p) ≤ L(R p̄_mm), p_mm ∈ G_mm, has

    - margin a = min_i max_{α∈O_i} min_{β∈Ō_i} (k_iα − k_iβ)·p ≥ ρ − κ;
    - cos(p, p_α) ≥ 1 − κ/ρ for the solution p_α of some choice α with Θ_α ≥ Θ − κ/R. Once ρ(1 − Θ₂/Θ) > κ, Θ₂ the
      margin of the best choice that is not optimal, all such choices are optimal: p_α ∈ G_mm, ‖p/ρ − p_α‖ ≤ ‖p_α‖
      √(2κ/ρ).

    *Derivation.* max_α min_β (k_α − k_β)·p = max_{O_i} k·p − max_{Ō_i} k·p =: a_i, and q_i = B/(A + B) with
    e^{max_O k·p} ≤ A ≤ |O_i| e^{max_O k·p}, likewise B. Hence e^{−max(a_i,0)}/(1 + |O_i|) ≤ 1/(1 + |O_i| e^{a_i}) ≤
    q_i ≤ |Ō_i| e^{−a_i}. By Lemma 14 and the mean value theorem C0_i q_i ≤ ℓ(Y_iψ) − ℓ(ν_i) ≤ C1_i q_i. At R p̄_mm
    every a_i ≥ ρ, so n(L − L_*) ≤ Σ C1_i|Ō_i| e^{−ρ}; at p, with a attained in input i, n(L − L_*) ≥ C0_i
    e^{−max(a,0)}/(1 + |O_i|). Together max(a, 0) ≥ ρ − κ > 0. Let α_i be the largest logit of p in O_i: p/a is
    feasible for the choice α, whose solution p_α is the projection of 0 onto a convex set: ⟨p/a, p_α⟩ ≥ ‖p_α‖². So a
    ≤ RΘ_α, which is Θ_α ≥ Θ − κ/R; if that exceeds Θ₂, α is an optimal choice, p_α ∈ G_mm. cos ≥ a‖p_α‖/‖p‖ ≥ (ρ −
    κ)/ρ as ‖p_α‖ ≥ 1/Θ; expanding |p/ρ − p_α|² gives the last bound.

    **Effective, from the duals**, at the same points: ⟨p, p_α⟩/‖p_α‖² ≥ min_α Σ_j w_j log(C_j/w_j) − log n(L(p) − L_*)
    over the same choices α and j = (i, β), w = λ/Σλ from the duals λ of p_α, C_iβ = |ℓ'(ν_i)| e_iβ e^{−b
    min(x,1)}/(|O_i| + |Ō_i|e^{−(ρ−κ)}), e_iβ = Σ_j |b_j|(least secant of φ_j) g_iβj with the weights b_j and
    activations φ_j of the head's units and the gaps g_iβj between features of optimal tokens and of β, x = T
    e^{−(ρ−κ)}, b of :func:`theorems.rounding.approximations.bend` on [ν_i − c1_i, ν_i], 0 for convex ℓ. *Derivation.*
    s_β ≥ e^{−(k_α−k_β)·p}/(|O_i| + |Ō_i|e^{−a}) with α the largest logit; then Jensen as in Theorem 1.

    **Limit.** For *every* minimiser p̄(R), 1 − cos ≤ κ/ρ and ≤ (log n(L(p') − L_*) + ρ − D)/ρ, D the minimum above and
    p' any point of the sphere: O(1/ρ). This is claimed of minimisers reached by descent from the rays of all p_mm ∈
    G_mm, up to ρ = 10⁶(1 + κ), where 1 − cos ≤ 10⁻⁶.

    **Sharp.** Where all other optimal tokens fall behind along p_mm (exactly decided) and p_mm has the lowest limit
    among G_mm, the path is Theorem 1's with costs c_iβ = |ℓ'(ν_i)| Σ_j |b_j| φ'_j(z*_ij) g_iβj (z*_ij: the features of
    the optimal tokens) divided by the number of optimal tokens that share α's key: same offset, same rate −2.
    """
    mixing, problem = linear_mixing(case), case.problem
    if isinstance(mixing, Finding):
        raise Undecided(MARGIN, f"mixing-hurts: {mixing.evidence}", Form.EFFECTIVE)
    sets = under_test[max_margin_sets](problem.keys, mixing.optimal, under_test[max_margin])
    if isinstance(sets, InfeasibleSets):
        sentence = "ATT-SVM' was reported infeasible"
        if not all(refusal.exact for refusal in sets.refusals):
            raise Refuted(LEAST, f"{sentence}, but its certificate does not prove this", Form.EXACT)
        raise Undecided(LEAST, sentence)
    yield solutions_claim(sets)
    linear = "head_features" not in case.arrays
    headed = under_test if linear else HeadedAttention(problem, mixing, under_test).as_implementation()
    kappa, rng = mixing_kappa(mixing, problem.loss), case.rng()
    rhos = kappa * np.array(SUBLEVEL_RADII)
    points, radius_index = sublevel_points(problem, mixing, sets, headed, rhos, rng)
    yield from in_sublevel_sets(problem, mixing, sets, headed, kappa, rhos, points, radius_index)
    if under_test.textbook_eps:
        # At the radii of the spheres, a gradient that a kernel computes by the textbook formulas consists of rounding
        # errors.
        return
    if not kappa < LARGEST_KAPPA:
        why = f"κ = {kappa:.3g}: the path begins to turn only beyond RΘ = κ"
        raise Undecided(PATH_DISTANCE, why, Form.LIMIT)
    yield from minimiser_claims(problem, mixing, sets, headed, kappa)
    path = path_to_the_lowest(problem, mixing, sets, headed, kappa, rng, PATH_CORRELATION)
    if path is not None:
        yield from on_the_path(path)


def solutions_claim(sets: MaxMarginSets) -> Claim:
    """Claim, exactly, that the reported set G_mm lists each point of least norm over all choices once, and no other."""
    points = [tuple((x.p, x.q) for x in c.svm.exact.p) for c in sets.solutions]
    least = min(c.norm_squared for c in sets.choices)
    best = {tuple((x.p, x.q) for x in c.svm.exact.p) for c in sets.choices if c.norm_squared == least}
    is_wrong = len(points) != len(set(points)) or set(points) != best
    detail = f"{len(points)} points, {len(best)} of least norm"
    return Claim(LEAST, Form.EXACT, -1.0 if is_wrong else 0.0, 0.0, EXACT, detail)


def in_sublevel_sets(
    problem: Problem,
    mixing: LinearMixing,
    sets: MaxMarginSets,
    headed: Implementation,
    kappa: float,
    rhos: Float64[np.ndarray, "r"],
    points: Float64[np.ndarray, "m d"],
    radius_index: Int64[np.ndarray, "m"],
) -> Iterator[Claim]:
    """Yield the effective claims at points p with ‖p‖ ≤ R, L(p) ≤ L(R p̄_mm), where RΘ is ``rhos[radius_index]``."""
    ray = sets.norm * (rhos[:, None] * sets.solutions[0].svm.direction)
    p, rho, options = exact(points), rhos[radius_index], {"points": "point of a sublevel set"}

    # The margin a of p: a ≥ ρ − κ.
    least = least_margin(mixing, problem, kappa, rhos, ray)[radius_index]
    yield at_least(MARGIN, Form.EFFECTIVE, set_margins(mixing, problem, p), least, **options)

    # The direction: ⟨p, p̄_α⟩/(ρ‖p_mm‖) ≥ 1 − κ/ρ for the solution p_α of some choice α with Θ_α ≥ Θ − κ/R.
    allowed = allowed_choices(sets, least, p)
    near = nearest(sets, allowed, p)
    yield at_least(DISTANCE, Form.EFFECTIVE, near / rho, least / rho, **options)

    # The bound from the duals w: ⟨p, p̄_α⟩/‖p_mm‖ ≥ min_α Σ_j w_j log(C_j/w_j) − log n(L(R p̄_mm) − L_*).
    edge = excess_of(headed, problem, mixing, ray, FROM_DUALS, Form.EFFECTIVE) + np.log(exact(problem.n))
    bound = dual_bound(problem, mixing, sets, allowed, least) - edge[radius_index]
    useful = bound > 0
    yield at_least(FROM_DUALS, Form.EFFECTIVE, near[useful], bound[useful], why=EXPONENT_ROUNDING, **options)


def minimiser_claims(
    problem: Problem, mixing: LinearMixing, sets: MaxMarginSets, headed: Implementation, kappa: float
) -> Iterator[Claim]:
    """Yield the limit claims at minimisers on spheres: bounds of their distance to the set G_mm of solutions."""
    rhos = (1 + kappa) * np.array(RADII)
    points, ray = minimisers(problem, sets, headed, rhos)
    p, length = exact(points), norm(exact(points), axis=1, keepdims=True)
    value = excess_of(headed, problem, mixing, points, PATH_DISTANCE, Form.LIMIT)
    # The risk of a minimiser is at most that of the point of the ray, up to the rounding errors of these risks.
    least = least_margin(mixing, problem, kappa, np.resize(rhos, len(ray)), ray)
    least = least.widen(2 * excess_rounding(problem, mixing, ray))
    allowed = allowed_choices(sets, least, p)
    duals = dual_bound(problem, mixing, sets, allowed, least) - value - np.log(exact(problem.n))
    # For unit vectors ‖p̄ − p̄_α‖²/2 equals 1 − cos(p, p_α), and computing it involves no cancellation.
    deviations = np.sum(((p / length)[:, None] - towards(sets)) ** 2, axis=-1) / 2
    deviation = np.min(np.where(allowed, deviations, np.inf), axis=-1)

    # The bounds on the path: 1 − cos ≤ κ/ρ and 1 − cos ≤ (log n(L(p') − L_*) + ρ − D)/ρ, see theorem_8; at the last
    # radius κ/ρ is at most 10⁻⁶.
    bound = 1 - np.maximum(least, duals) * norm(with_rounding(sets.choices[0].p)) / length[:, 0]
    yield at_least(PATH_DISTANCE, Form.LIMIT, bound, deviation, why=EXPONENT_ROUNDING, points="minimiser on a sphere")
    yield at_least(PATH_LIMIT, Form.LIMIT, REACHED, deviation[len(rhos) - 1 :: len(rhos)], points="solution")


def mixing_kappa(mixing: LinearMixing, loss: Loss) -> float:
    """Return κ of :func:`theorem_8`, log Σ_i C1_i |Ō_i| − min_i log(C0_i/(1 + |O_i|)), at most that of Theorem 1."""
    low, high = log_slope_bounds(mixing, loss)
    mixed = mixing.mixed
    size = mixing.optimal.sum(axis=1)
    upper = np.logaddexp.reduce((high + np.log(np.maximum(mixing.optimal.shape[1] - size, 1)))[mixed])
    return float(upper - np.min((low - np.log1p(size))[mixed]))


def set_margins(mixing: LinearMixing, problem: Problem, p: Numbers) -> Numbers:
    """Return min_i max_{α∈O_i} min_{β∉O_i} (k_iα − k_iβ)·p at points (*b, d), (*b,); O_i: the optimal tokens."""
    keys, optimal = exact(problem.keys[mixing.mixed]), mixing.optimal[mixing.mixed]
    logits = np.vecdot(keys - keys[:, :1], p[..., None, None, :])
    best = np.max(np.where(optimal, logits, -np.inf), axis=-1)
    other = np.max(np.where(optimal, -np.inf, logits), axis=-1)
    return np.min(best - other, axis=-1)


def least_margin(
    mixing: LinearMixing, problem: Problem, kappa: float, rho: Float64[np.ndarray, "m"], ray: Float64[np.ndarray, "m d"]
) -> Numbers:
    """Return ρ − κ, the lower bound of the margin of points whose risk is at most that of ``ray`` = ρ p_mm, (m,).

    κ is ``kappa``. The error of the result is that of κ, plus a dozen roundings of ``ray``.
    """
    margin_error = set_margins(mixing, problem, exact(ray) * exact(1.0).widen(8 * EPS)).error
    return (exact(rho) - kappa).widen(margin_error + log_rounding(mixing, problem.loss))


def allowed_choices(sets: MaxMarginSets, least: Numbers, p: Numbers) -> Bool[np.ndarray, "m c"]:
    """Return the mask of the choices α that p may select, (m, c): ‖p‖Θ_α ≥ ``least``, Θ_α the largest margin for α."""
    best = sets.choices[0].norm_squared
    # The difference 1 − Θ_α/Θ is computed without cancellation as x/(1 + √(1 − x)), x = 1 − (Θ_α/Θ)².
    x = with_rounding([float((c.norm_squared - best) / c.norm_squared) for c in sets.choices])
    length = norm(p, axis=1) / norm(with_rounding(sets.choices[0].p))
    return np.asarray(possibly_at_least((length - least)[:, None], length[:, None] * (x / (1 + np.sqrt(1 - x)))))


def nearest(sets: MaxMarginSets, allowed: Bool[np.ndarray, "m c"], p: Numbers) -> Numbers:
    """Return the largest ⟨p, p̄_α⟩/‖p_mm‖ over the allowed choices α, shape (m,), p̄_α the direction of α's solution."""
    along = p @ towards(sets).T / norm(with_rounding(sets.choices[0].p))
    return np.max(np.where(allowed, along, -np.inf), axis=-1)


def towards(sets: MaxMarginSets) -> Numbers:
    """Return the directions p̄_α of the solutions of all choices α, (c, d)."""
    solutions = with_rounding(np.array([c.p for c in sets.choices]))
    return solutions / norm(solutions, axis=1, keepdims=True)


def dual_bound(
    problem: Problem, mixing: LinearMixing, sets: MaxMarginSets, allowed: Bool[np.ndarray, "m c"], beyond: Numbers
) -> Numbers:
    """Return the minimum over the allowed choices of Σ_j w_j log(C_j/w_j), (m,), if margins are at least ``beyond``.

    For j = (i, β), C_iβ = |ℓ'(ν_i)| e_iβ e^{−b x} / (|O_i| + |Ō_i| e^{−beyond}) with the least cost |ℓ'(ν_i)| e_iβ of β
    (:func:`.log_token_costs`); w = λ/Σλ with the duals λ of the choice's solution; x = min(1, T e^{−beyond}) ≥ q_i, and
    b of :func:`bend`. Other symbols: see :func:`theorem_8`.
    """
    size = mixing.optimal.sum(axis=1)
    log_costs, rounding = log_token_costs(mixing, problem.loss, secants=True), log_rounding(mixing, problem.loss)
    small = np.exp(-np.maximum(beyond, 0.0))
    normaliser = np.log(size + (problem.T - size) * small[:, None])
    correction = bend(problem.loss, mixing.nu[mixing.mixed], mixing.c1[mixing.mixed]) * np.minimum(
        problem.T * small, 1.0
    )
    bounds = []
    for choice in sets.choices:
        # The dual of a token that occurs twice in the SVM is a sum, with a rounding error for each term.
        duals, support = with_rounding(choice.duals) * exact(1.0).widen(problem.T * EPS), choice.duals > 0
        w = duals / np.sum(duals)
        fixed = np.sum(w[support] * (exact(log_costs[support]).widen(rounding) - np.log(w[support])))
        bounds.append(fixed - correction - normaliser @ np.sum(w, axis=1))
    return np.min(np.where(allowed, np.stack(bounds, axis=-1), np.inf), axis=-1)
