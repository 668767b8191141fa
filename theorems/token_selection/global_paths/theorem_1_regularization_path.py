"""Theorem 1: the regularization path turns to the max-margin direction of the optimal tokens.

Main results: lower bounds on the margin and on the cosine with p_mm for every p of norm at most R whose risk is at most
that of R p̄_mm (a *sublevel set*); the path at radii up to 1e6, where 1 − cos falls like R⁻²; the offset of the path
from the ray of p_mm, at finite radii and, in the limit, in closed form.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1, Appendix B.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import MODERATE
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import exact, with_rounding
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided, at_least, section, undecided_claim
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.key_rows import key_rows
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.core.tolerances import tolerance
from theorems.curves.constraints import Constraints, exact_to_rounding
from theorems.curves.followed_path import FOLLOWED, PATH_PREMISES, PATH_ROUNDING, Followed, FollowedPath
from theorems.curves.reduced_program import Reduced, closed_form, tangent_basis
from theorems.curves.sphere import Sphere
from theorems.curves.sublevel_hunt import sublevel_points
from theorems.rounding.approximations import approximate, bend
from theorems.rounding.attention_at import Numbers
from theorems.rounding.excess_risk import log_excess_of
from theorems.token_selection.global_paths.path_minimisers import OPTIMISER_PREMISES, OptimiserPath

PATH_DUAL_GAP = tolerance(
    "path-dual-gap",
    "(|y| e + e²)/ρ² + (m + d + 8) eps (Σ_j w_j|exponent_j| + 1 + max|log c| + max|log w|)/ρ",
    "1 − cos ≤ (F_ρ(y') − D)/ρ may hold with equality; e is the rounding error of the followed point (path-rounding),"
    " the other terms are the rounding errors of F and D, sums of logarithms",
)
OFFSET_CONVERGENCE = tolerance(
    "offset-convergence",
    "|H⁻¹∇F_ρ| + (e^{1.5 x} − 1)|H⁻¹∇F_ρ|_H/√λ_min(H) + path-rounding",
    "the limit differs from the minimiser of F_ρ by O(1/ρ); the gradient of F_ρ at the limit bounds this difference,"
    " because log-sum-exp is quasi-self-concordant (theorems.curves.reduced_program.Reduced.correction)",
)
RATE_FIT = tolerance(
    "rate-fit",
    "Σ|x_i| e_i / Σ x_i², x_i = log ρ_i − mean, e_i = 2 log((|o| + τ_i)/(|o| − τ_i)) + 4|o|²/ρ_i²",
    "log(1 − cos) = log(|o|²/2) − 2 log ρ + an error of at most e_i, which follows from the bound τ_i on the offset's"
    " distance from its limit; a least-squares slope is linear in these errors",
)
PATH_OPTIMISER = tolerance(
    "path-optimiser",
    "path-rounding + 1e-8 (|y| + 1/(κ‖p_mm‖))",
    "where the curvature is small, rounding keeps Newton's steps from shrinking, and the optimiser ends once they are"
    " below 1e-8 of the offset plus 1/κ; both offsets, predicted and reported, also have the rounding of the path",
)

MARGIN = sharper("sublevel-margin")
CORRELATION = sharper("sublevel-correlation")
FROM_DUALS = sharper("sublevel-correlation-from-duals")
PATH_CORRELATION = stated_claim("path-correlation", when=FOLLOWED)
AT_RADIUS = sharper("offset-at-radius", when=FOLLOWED, refines=PATH_CORRELATION)
CLOSED_FORM = sharper(
    "offset-closed-form",
    when="the rows of the SVM-neighbours are independent, with positive duals, d > 1",
    refines=PATH_CORRELATION,
)
OFFSET_LIMIT = sharper(
    "offset-limit",
    when="the rows of the SVM-neighbours are dependent, with positive duals, d > 1",
    refines=PATH_CORRELATION,
)
CORRECTION = sharper(
    "offset-first-correction",
    when="some dual solution is positive at all SVM-neighbours, d > 1",
    refines=PATH_CORRELATION,
)
RATE = sharper(
    "path-rate", when="at two radii the error of the offset is below half of its length", refines=PATH_CORRELATION
)
LOG_RATE = sharper(
    "path-rate-with-logarithm", when="some SVM-neighbour has dual zero in every dual solution", refines=PATH_CORRELATION
)
MINIMISED_OFFSET = sharper(
    "minimised-path-offset",
    when="the path is followed to a radius where the reduced program predicts the offset",
    refines=PATH_CORRELATION,
)
PATH_CLAIMS = (
    *PATH_PREMISES,
    PATH_CORRELATION,
    AT_RADIUS,
    CLOSED_FORM,
    OFFSET_LIMIT,
    CORRECTION,
    RATE,
    LOG_RATE,
)
"""The claims that :func:`on_the_path` makes."""

SUBLEVEL_RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""The radii R of the sublevel sets as values of RΘ/κ, with the margin Θ of p̄_mm and the κ of :func:`log_kappa`."""
PATH_RADII = (1e2, 1e3, 1e4, 1e5, 1e6)
"""The radii R up to which the path is followed, as values of RΘ, with the margin Θ of p̄_mm."""
LARGEST_KAPPA = 1e5
"""The largest κ (:func:`log_kappa`) at which the path turns to p̄_mm within :data:`PATH_RADII`."""
LARGEST_ROUNDING = 1e-3
"""The largest rounding error of an exponent at which the path is followed; it excludes large radii if ‖p_mm‖ is large.
"""
STALLED = 1e-8
"""The relative size of Newton steps at which the optimiser may end, allowed for by the tolerance PATH_OPTIMISER."""

ASSUMPTIONS = ("well-behaved-loss", "strict-optimum", "separable")


def _cases() -> SearchStrategy[Case]:
    return cases(assumptions=ASSUMPTIONS, large=MODERATE)


@statement(
    "theorem-1",
    "Regularization path: p̄(R)/R → p̄_mm",
    source="Theorem 1, Appendix B.2",
    claims=(
        SVM_IS_OPTIMAL,
        MARGIN,
        CORRELATION,
        FROM_DUALS,
        *PATH_CLAIMS,
        *OPTIMISER_PREMISES,
        MINIMISED_OFFSET,
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=BELOW_ROUNDING,
)
def theorem_1(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, with one strictly best token per input and a solution p_mm of ATT-SVM(opt).

    Then the regularization path p̄(R) = argmin_{‖p‖≤R} L(p) satisfies p̄(R)/R → p̄_mm. Write Θ = 1/‖p_mm‖, ρ = RΘ.

    **Effective.** Let κ = log(2n(T−1) c_max Γ_max / (c_min Γ_min)) with c_max, c_min bounds of |ℓ'| on the score
    range and Γ_max, Γ_min the extreme gaps γ_i,opt − γ_it. For ρ > κ, every p with ‖p‖ ≤ R and L(p) ≤ L(R p̄_mm) has
    all margins (k_i,opt − k_it)·p ≥ ρ − κ and cos(p, p_mm) ≥ 1 − κ/ρ.
    *Derivation.* With the softmax weights s_it put δ_i = Σ_t s_it (γ_i,opt − γ_it); the mean value theorem gives
    c_min δ_i ≤ ℓ(γ_i,opt − δ_i) − ℓ(γ_i,opt) ≤ c_max δ_i. At R p̄_mm every margin is ≥ ρ, so s_it ≤ e^{−ρ} and
    L − L_opt ≤ c_max Γ_max (T−1) e^{−ρ}, L_opt the risk of selecting opt. At p let a be the smallest margin, in input
    i: then 1 − s_i,opt ≥ e^{−a}/(1 + e^{−a}) ≥ e^{−max(a,0)}/2, so L − L_opt ≥ c_min Γ_min e^{−max(a,0)}/(2n). Together
    max(a, 0) ≥ ρ − κ > 0, hence a ≥ ρ − κ. Now p/a is feasible for the SVM, and p_mm is the projection of 0 onto
    the feasible set: ⟨p/a, p_mm⟩ ≥ ‖p_mm‖². So cos ≥ a‖p_mm‖/‖p‖ ≥ a/ρ ≥ 1 − κ/ρ.

    **Effective, from the duals.** Let j run over the pairs (i, t) with t ≠ opt_i, and let λ_j be the duals of p_mm and
    a_j the margins of p. With c_j = |ℓ'(γ_i,opt)|(γ_i,opt − γ_it), w_j = λ_j/Σλ, x = (T−1)e^{−(ρ−κ)} and b of
    :func:`theorems.rounding.approximations.bend`, which is 0 where ℓ is convex:
    ‖p‖Θ cos(p, p_mm) ≥ Σ_j w_j log(c_j/w_j) − log1p(x) − b min(x, 1) − log n(L(R p̄_mm) − L_opt).
    *Derivation.* Input i loses δ_i ≤ Γ_i min(x, 1), Γ_i the range of its scores, so n(L − L_opt) ≥ Σ c_j s_j e^{−b
    min(x,1)} (convexity, or :meth:`.loss.Loss.steepening`), and s_j ≥ e^{−a_j}/(1 + x). Jensen's inequality: log Σ c_j
    e^{−a_j} ≥ −Σ w_j a_j + Σ w_j log(c_j/w_j), and Σ λ_j a_j = ⟨p_mm, p⟩, Σλ = ‖p_mm‖² are KKT.

    **Limit.** Let F_ρ be the function of a tangent y that the path minimises on the sphere
    (:mod:`theorems.curves.reduced_program`). On the path, 1 − cos ≤ (F_ρ(y') − D)/ρ for *every* tangent y', D = Σ w_j
    log(c_j/w_j) (or the minimum of F_∞, which is the largest D over all duals), because the Jensen step above gives
    F_ρ(y) ≥ D + ρ(1 − cos) on the sphere. With y' near the minimiser the bound is |o|²/(2ρ²)(1 + o(1)), o the path's
    offset. If some SVM-neighbour has dual zero in every dual solution there is no minimiser of F_∞; then y' = y_S + h
    log ρ, y_S a minimiser for the other neighbours, h·ĝ_j ≥ 1 for the row ĝ_j = ‖p_mm‖(k_i,opt − k_it) of a neighbour
    with dual zero and 0 for the others, shows |y_ρ|² ≤ |y_S + h log ρ|² + O(1): 1 − cos = O((log ρ/ρ)²). Otherwise
    log(1 − cos) falls with slope −2 in log ρ.

    **Sharp.** The tangential part of p̄(R) is argmin F_ρ at every radius. As ρ → ∞ it tends to argmin F_∞; for linearly
    independent neighbours with rows G and positive duals this is G⁺ log(c/λ) less its component along p_mm. The error
    is O(1/ρ) with a computed bound, and its first term is −H⁻¹y/ρ, H the Hessian of F_∞.
    """
    problem = case.problem
    svm = yield from certify(problem, problem.optimal, under_test)
    constraints, kappa = Constraints.of(problem, svm), log_kappa(problem)
    basis = tangent_basis(svm.direction, constraints.rows)
    if not kappa.value < 1 / EPS:
        why = f"κ = {kappa.value:.3g}: at RΘ = κ rounding changes a logit by more than 1"
        raise Undecided(MARGIN, why, Form.EFFECTIVE)
    rhos = float(kappa.value) * np.array(SUBLEVEL_RADII)
    points, radius_index = sublevel_points(problem, under_test, svm, constraints, basis, rhos, case.rng())
    yield from in_sublevel_sets(problem, under_test, svm, kappa, rhos, points, radius_index)
    if under_test.textbook_eps:
        # At the radii of the path, a gradient that a kernel computes by the textbook formulas consists of rounding
        # errors.
        return
    path = _follow_path(problem, under_test, svm, constraints, basis, float(kappa.value), case.rng())
    yield from on_the_path(path)
    yield from optimiser_claims(OptimiserPath.of(path.at, under_test))


def in_sublevel_sets(
    problem: Problem,
    under_test: Implementation,
    svm: MaxMargin,
    kappa: Numbers,
    rhos: Float64[np.ndarray, "r"],
    points: Float64[np.ndarray, "m d"],
    radius_index: Int64[np.ndarray, "m"],
) -> Iterator[Claim]:
    """Yield the claims with explicit constants at points p with ‖p‖ ≤ R and L(p) ≤ L(R p̄_mm).

    Here RΘ = ``rhos[radius_index]``, with Θ the margin of p̄_mm. Because of rounding, the excess risk at p may be larger
    than that at R p̄_mm, by a factor of at most e^o; the bounds are then claimed with RΘ − o in place of RΘ.
    """
    p, p_mm, rho, options = (
        exact(points),
        with_rounding(svm.p),
        rhos[radius_index],
        {"points": "point of a sublevel set"},
    )
    log_edge = log_excess_of(under_test, problem, rhos[:, None] * p_mm, MARGIN)[radius_index]
    over = np.maximum(log_excess_of(under_test, problem, p, MARGIN) - log_edge, 0.0)
    rows = key_rows(problem, problem.optimal)[np.arange(problem.T) != problem.optimal[:, None]]
    length, along = norm(p, axis=1) / norm(p_mm), p @ p_mm / (p_mm @ p_mm)

    # The bounds of margins, (k_i,opt − k_it)·p ≥ ρ − κ, and of the cosine, cos(p, p_mm) ≥ 1 − κ/ρ.
    least = rho - over - kappa
    yield at_least(MARGIN, Form.EFFECTIVE, np.min(p @ rows.T, axis=1), least, **options)
    yield at_least(CORRELATION, Form.EFFECTIVE, along / length, least / np.maximum(length, rho), **options)

    # The bound from the duals w (symbols: see theorem_1): ‖p‖Θ cos(p, p_mm) ≥ D(w) − log1p(x) − b min(x, 1) − log n(L(R
    # p̄_mm) − L_opt).
    x = (problem.T - 1) * np.exp(-np.maximum(least, 0.0))
    b = bend(problem.loss, problem.scores.max(axis=1), problem.gaps().max(axis=1))
    correction = np.log1p(x) + b * np.minimum(x, 1.0)
    bound = dual_value(problem, svm) - correction - (log_edge + over + np.log(exact(problem.n)))
    yield at_least(FROM_DUALS, Form.EFFECTIVE, along, bound, **options)


@section
def on_the_path(path: FollowedPath) -> Iterator[Claim]:
    """Yield the claims on limits and first-order terms at the radii ρ of the path; o is its offset from p_mm's ray."""
    yield from premises(path)
    rho, size, one_minus = path.rho, path.size, path.one_minus_cosine
    noise = (size * path.rounding + path.rounding**2) / rho**2 + path.value_rounding / rho
    gap: dict[str, Any] = {"rounding": noise, "why": PATH_DUAL_GAP, "scale": one_minus[-1:].max(initial=EPS)}

    # The bound on the path, 1 − cos ≤ (F_ρ(y') − D)/ρ, for the tangent y' = argmin F_ρ.
    bound = (path.values([f.predicted for f in path.at]) - path.dual) / rho
    yield at_least(PATH_CORRELATION, Form.LIMIT, bound, one_minus, points="radius", **gap)

    # The offset o of the path is the predicted one, argmin F_ρ.
    distances = np.array([np.linalg.norm(f.followed - f.predicted) for f in path.at])
    options: dict[str, Any] = {"rounding": path.rounding, "why": PATH_ROUNDING, "scale": np.maximum(size, 1.0)}
    yield at_least(AT_RADIUS, Form.SHARP, 0.0, distances, points="radius", **options)

    if path.svm.strictly_complementary:
        yield from _in_the_limit(path)
        return
    # Some neighbour has no dual: the bound 1 − cos ≤ (F_ρ(y') − D)/ρ for tangents y' that grow like log ρ.
    first, r0 = path.at[0].predicted, rho[0]
    h = (path.limit - first) / math.log(path.far[0].rho / r0)
    bound = (path.values([first + h * math.log(r / r0) for r in rho]) - path.dual) / rho
    yield at_least(LOG_RATE, Form.LIMIT, bound, one_minus, points="radius", **gap)


def _in_the_limit(path: FollowedPath) -> Iterator[Claim]:
    """Claim o → argmin F_∞ for the path's offset o, with its first correction in 1/ρ, where an error bound exists."""
    limit, independent = path.limit, path.svm.independent
    if not (path.far[2] or independent):
        yield undecided_claim(OFFSET_LIMIT, "Newton's method on the limit program did not converge", Form.SHARP)
        return
    if limit.size == 0:
        return
    name, slack = OFFSET_LIMIT, 8 * EPS * (1 + float(np.linalg.norm(limit)))
    if independent:
        limit, condition = closed_form(path.constraints, path.basis)
        name, slack = CLOSED_FORM, slack * condition
    corrections = [f.sphere.reduced.correction(limit) for f in path.at]
    near = [k for k, (_, rest) in enumerate(corrections) if np.isfinite(rest)]
    if not near:
        # A token that has a margin of 1 + 3e-9 at p_mm, say, still matters at these radii: nothing is claimed of the
        # limit.
        return
    differences = np.array([path.at[k].followed - limit for k in near])
    first, rest = np.array([corrections[k][0] for k in near]), np.array([corrections[k][1] for k in near])
    rounding, total = path.rounding[near] + slack, np.linalg.norm(first, axis=1) + rest
    size = float(np.linalg.norm(limit))
    options: dict[str, Any] = {"why": OFFSET_CONVERGENCE, "scale": max(size, 1.0), "points": "radius"}

    # The difference o − argmin F_∞ is O(1/ρ); without its first term −H⁻¹y/ρ, H the Hessian of F_∞ at y = argmin F_∞,
    # it is of higher order.
    distances, beyond = np.linalg.norm(differences, axis=1), np.linalg.norm(differences - first, axis=1)
    yield at_least(name, Form.SHARP, 0.0, distances, rounding=total + rounding, **options)
    yield at_least(CORRECTION, Form.SHARP, 0.0, beyond, rounding=rest + rounding, **options)
    yield from rate(path.rho[near], path.one_minus_cosine[near], size, total + rounding)


def rate(
    rho: Float64[np.ndarray, "r"],
    one_minus_cosine: Float64[np.ndarray, "r"],
    size: float,
    error: Float64[np.ndarray, "r"],
) -> Iterator[Claim]:
    """Claim that log(1 − cos) falls with slope −2 in log ρ along the path; ``size`` is the limit of |o|, o the offset.

    ``error`` are bounds of the error of o at each radius. An error e changes log(1 − cos) by at most 2
    log((|o|+e)/(|o|−e)).
    """
    usable = error < size / 2
    if usable.sum() < 2:
        return
    log_rho, log_gap, e = np.log(rho[usable]), np.log(one_minus_cosine[usable]), error[usable]
    # For the tangential part y of p, 1 − cos = |y|²/(ρ(ρ + h)), h = √(ρ² − |y|²), differs from |y|²/2ρ² by a relative
    # |y|²/4ρ² to first order.
    change = 2 * np.log((size + e) / (size - e)) + (2 * size / np.exp(log_rho)) ** 2
    x = log_rho - log_rho.mean()
    slope, allowed = float(x @ log_gap / (x @ x)), float(np.abs(x) @ change / (x @ x))
    yield Claim(RATE, Form.LIMIT, -abs(slope + 2), allowed, RATE_FIT, f"slope {slope:.9f} over {len(x)} radii")


def optimiser_claims(path: OptimiserPath) -> Iterator[Claim]:
    """Claim that the offsets that the optimiser reports, and those of its points, equal the predicted offsets."""
    yield from premises(path)
    sphere, offsets = path.followed_to[0].sphere, path.offsets
    distance, size = norm(offsets - path.predicted_offsets, axis=2).max(axis=0), norm(offsets[0], axis=1)
    allowed = path.rounding + STALLED * (size + 1 / (sphere.problem.key_scale * sphere.svm.norm))
    options: dict[str, Any] = {"why": PATH_OPTIMISER, "scale": np.maximum(size, 1.0), "points": "radius"}
    yield at_least(MINIMISED_OFFSET, Form.SHARP, 0.0, distance, rounding=allowed, **options)


def log_kappa(problem: Problem) -> Numbers:
    """Return κ = log(2 n (T−1) c_max Γ_max / (c_min Γ_min)), as a sum of logarithms, so that nothing overflows.

    c_max and c_min are bounds of |ℓ'| on the score range; Γ_max and Γ_min are the largest and the smallest gap γ_i,opt
    − γ_it, t ≠ opt_i.
    """
    others = np.arange(problem.T) != problem.optimal[:, None]
    log_gaps: Any = np.log(exact(problem.scores.max(axis=1))[:, None] - problem.scores)[others]
    bounds = np.array([bound(*problem.score_range) for bound in (problem.loss.log_bound, problem.loss.log_floor)])
    largest, smallest = approximate(bounds, 8 * EPS * (1 + np.abs(bounds)))
    pairs = np.log(exact(2 * problem.n * (problem.T - 1)))
    return pairs + (largest - smallest) + (np.max(log_gaps) - np.min(log_gaps))


def dual_value(problem: Problem, svm: MaxMargin) -> Numbers:
    """Return D(w) = Σ w_j log(c_j/w_j) for the normalized duals w_j = λ_j/Σλ of p_mm and the costs c_j.

    c_j = |ℓ'(γ_i,opt)|(γ_i,opt − γ_it) for j = (i, t). D(w) is at most log Σ c_j e^{−g_j·y} for every y ⊥ p_mm, g_j =
    k_i,opt − k_it (Jensen's inequality; Σ w_j g_j is parallel to p_mm).
    """
    support, best = svm.duals > 0, exact(problem.scores.max(axis=1))[:, None]
    duals: Any = with_rounding(svm.duals[support])
    w = duals / np.sum(duals)
    log_costs = problem.loss.log_slope(best) + np.log(best - problem.scores)
    return np.sum(w * (log_costs[support] - np.log(w)))


def _follow_path(
    problem: Problem,
    under_test: Implementation,
    svm: MaxMargin,
    constraints: Constraints,
    basis: Float64[np.ndarray, "d e"],
    kappa: float,
    rng: np.random.Generator,
) -> FollowedPath:
    """Return the path at the radii R at which the optimal tokens dominate and float64 resolves the path."""
    if not kappa < LARGEST_KAPPA:
        why = f"κ = {kappa:.3g}: the path begins to turn only beyond RΘ = κ, out of reach of {PATH_RADII[-1]:g}"
        raise Undecided(PATH_CORRELATION, why, Form.LIMIT)
    turning = [rho for rho in PATH_RADII if exact_to_rounding(problem, kappa, rho)]
    # In one dimension the path is the ray of p_mm, whatever the rounding errors are.
    radii = [
        rho
        for rho in turning
        if problem.d == 1 or constraints.exponent_rounding(rho * svm.direction) < LARGEST_ROUNDING
    ]
    if not radii:
        why = f"‖p_mm‖ = {svm.norm:.3g}: rounding of the logits at RΘ = {turning[0]:g} hides the path"
        raise Undecided(PATH_CORRELATION, why, Form.LIMIT)
    spheres = [Sphere(problem, svm, basis, Reduced.at(constraints, basis, rho), under_test) for rho in radii]
    at = [Followed.at(sphere, constraints) for sphere in spheres]
    return FollowedPath(at, constraints, basis, svm, rng, PATH_CORRELATION)
