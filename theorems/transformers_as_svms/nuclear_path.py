"""Regularization path of (K, Q): KQᵀ/R converges to W_⋆/C_⋆, W_⋆ of least nuclear norm C_⋆ for the optimal tokens.

Main results: explicit bounds on the margins of KQᵀ and on its distances from a face of matrices and from ρW_⋆ over a
whole sublevel set; the path itself at radii up to 1e6, each point with a certificate that it is a minimiser; its offset
from the ray.

References: *Transformers as Support Vector Machines*, Theorem 2 (KQ-ERM).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.transformers_as_svms.nuclear_cases import nuclear_cases
from reference_attention.floats import EPS
from reference_attention.paths.nuclear_offsets import NuclearOffsets
from reference_attention.paths.nuclear_path import log_costs_of, nuclear_path
from reference_attention.svm.max_margin import Infeasible
from reference_attention.svm.nuclear_max_margin import nuclear_max_margin
from theorems.bounded import exact
from theorems.core.att_svm import end_as_infeasible
from theorems.core.claim import Claim, Ended, Form, NotANumber, Refuted, Undecided, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import FAR
from theorems.core.nuclear_certificate import NuclearCertificate, nuclear_claim
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.curves.constraints import exact_to_rounding
from theorems.curves.missing_points import missing_claim
from theorems.rounding.approximations import approximate, bend
from theorems.rounding.attention_at import Numbers
from theorems.rounding.excess_risk import log_excess_of
from theorems.token_selection.global_paths.theorem_1_regularization_path import log_kappa
from theorems.transformers_as_svms.curves.nuclear_bounds import NUCLEAR_ROUNDING, NuclearBounds
from theorems.transformers_as_svms.curves.nuclear_limit import corrections, offset_in_closed_form
from theorems.transformers_as_svms.curves.nuclear_points import half_squares, nuclear_points

NUCLEAR_PATH_GAP = tolerance(
    "nuclear-path-gap",
    "64 (N + d + e) eps (1 + ρ Σ_j ω_j‖G_j‖C_⋆ + max|log c|) + 32 (d + e) eps ρC_⋆ Σ_j ω_j‖G_j‖²‖o‖",
    "R‖M‖_op − ⟨M, W⟩ is a difference of two numbers of size ρ, each summed in floats from N rows of d·e entries; a"
    " rounding error r of the offset o changes h_j by ‖G_j‖r, weights by the same relative amount, and R‖M‖_op by"
    " R Σ ω_j‖G_j‖² r; the logarithms of the risk have rounding errors, too",
)
NUCLEAR_OFFSET = tolerance(
    "nuclear-offset",
    "|o¹ − o| + 2|o² − o¹| + 16 (d + e) eps ρ C_⋆ + 8 k eps cond |x|",
    "o¹ and o² are one and two Newton steps from the limit o at radius ρ; the second step is at most a quarter of the"
    " first, so that all further steps sum to less than the second; W̄(R) − ρW_⋆ is a difference of matrices of size"
    " ρC_⋆; and o is the solution x of a linear system in k unknowns",
)

UNIQUE = "the solution of ATT-SVM⋆ is proven the only one"
FOLLOWED = f"{UNIQUE}, and float64 resolves radii at which the path turns"
LIMIT_NEAR = f"{FOLLOWED}, at a radius where ρ·slack and ρ·g are large"

SVM_IS_OPTIMAL = premise("nuclear-svm-is-optimal")
MARGIN = sharper("sublevel-margin")
FROM_DUALS = sharper("sublevel-norm-from-duals")
BALANCE = sharper("sublevel-factors-balanced")
FACE = sharper("sublevel-face-distance")
SOLUTION = sharper("sublevel-solution-distance", when=UNIQUE)
IN_BALL = premise("path-in-the-ball", when=FOLLOWED)
MINIMAL = premise("path-is-minimal", when=FOLLOWED)
PATH_MARGIN = sharper("path-margin", when=FOLLOWED)
TURNS = stated_claim("path-turns", when=FOLLOWED)
OFFSET = sharper("path-offset-closed-form", when=LIMIT_NEAR, refines=TURNS)

SUBLEVEL_RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""The radii ρ = R/C_⋆ of the sublevel sets, in units of κ."""
POINTS = 60
"""The number of points checked per sublevel set."""
PATH_RADII = (1e2, 1e3, 1e4, 1e5, 1e6)
"""The radii ρ = R/C_⋆ of the path."""
RESOLVED = 40.0
"""The least values of ρ·slack − log ρ and of ρ·g at which the offset is compared with its limit.

The slack is the excess over 1 of the margins that are not tight, and g the gap 1 − σ_{r+1}(M); e^−40 is below rounding.
"""
NEAR = 0.1
"""The largest first Newton step, in units of max(C_⋆, ‖limit‖), for which the offset is compared with its limit."""


@statement(
    "tsvm-nuclear-path",
    "Regularization path of (K, Q): KQᵀ/R → 𝒲_⋆/C_⋆, of least nuclear norm",
    source="T-SVM, Theorem 2 (KQ-ERM)",
    claims=(
        *QUERY_CLAIMS,
        SVM_IS_OPTIMAL,
        MARGIN,
        FROM_DUALS,
        BALANCE,
        FACE,
        SOLUTION,
        IN_BALL,
        MINIMAL,
        PATH_MARGIN,
        TURNS,
        OFFSET,
    ),
    assumptions=("queries-given", "well-behaved-loss", "strict-optimum", "separable"),
    cases=nuclear_cases,
    kernel=FAR,
)
def tsvm_nuclear_path(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and one token of each input be strictly best.

    Let h_it(W) = (x_i,opt − x_it)ᵀ W z_i ≥ 1 be feasible, C_⋆ = min ‖W‖_⋆ over such W, Θ_⋆ = 1/C_⋆, and 𝒲_⋆ the set of
    minimisers. The path (K̄, Q̄)(R) = argmin of L(KQᵀ) over ½(‖K‖_F² + ‖Q‖_F²) ≤ R has dist(K̄Q̄ᵀ/R, 𝒲_⋆Θ_⋆) → 0.

    As min{½(‖K‖² + ‖Q‖²) : KQᵀ = W} = ‖W‖_⋆, this is the path of W over ‖W‖_⋆ ≤ R (K and Q have min(d, e) columns).

    **Effective.** Let ρ = RΘ_⋆, κ = log(2n(T−1) c_max Γ_max/(c_min Γ_min)) as in Theorem 1 of the first paper (c bounds
    |ℓ'| on the range of scores and Γ the score gaps), and W_⋆ ∈ 𝒲_⋆. For ρ > κ, every W with ‖W‖_⋆ ≤ R and L(W) ≤
    L(ρW_⋆) has all margins h_it(W) ≥ ρ − κ: the derivation of Theorem 1 uses only margins.

    *The face.* Let λ ≥ 0 be dual optimal: Σλ = C_⋆ and ‖M‖_op = 1 for M = Σ λ_it (x_i,opt − x_it) z_iᵀ. Let U1 and V1
    be the r pairs of singular vectors of M of singular value 1, and g = 1 − σ_{r+1}(M). 𝒲_⋆ lies in the face
    F = {U1 P V1ᵀ : P ⪰ 0}. Every W of the sublevel set has

        e = R − C_⋆ m(W) ≤ C_⋆κ,   ‖W‖_⋆ − ⟨M, W⟩ ≤ e,   dist_⋆(W, F) ≤ 2√(Re/g).

    *Derivation.* ⟨M, W⟩ = Σ λh ≥ C_⋆ m(W). Let W = Σ σ_k u_k v_kᵀ, u_k = U1a + U2b, v_k = V1c + V2d. Then 1 − u_kᵀM v_k
    ≥ 1 − a·c − (1−g)|b||d| ≥ ½|a − c|² + (g/2)(|b|² + |d|²) =: e_k, so that Σ σ_k e_k ≤ e. With μ_k = ½(a + c) and
    u_k = U1μ_k + p, v_k = V1μ_k + q: ‖u_k v_kᵀ − U1 μ_kμ_kᵀ V1ᵀ‖_⋆ ≤ |p| + |q| ≤ √2 (½|a − c|² + |b|² + |d|²)^½ ≤
    2√(e_k/g), and Cauchy's inequality gives Σ σ_k 2√(e_k/g) ≤ 2√(Re/g). The claim uses the point P = Σ σ_k μ_kμ_kᵀ.

    *The solution.* Let S = {λ > 0} and τ > 0 be the least singular value of P ↦ (⟨G_j, U1 P V1ᵀ⟩)_S on symmetric
    matrices. Then W_⋆ is the only solution, and with B = 2√(Re/g) and b = ρ − min h ≤ κ

        ‖W − ρW_⋆‖_F ≤ B + [(Σ_S ‖G_j‖²)^½ B + e/min_S λ + √|S| b]/τ.

    *Derivation.* Let V = U1 P V1ᵀ be the point of F above. ⟨G_j, V − ρW_⋆⟩ differs from h_j(W) − ρ by at most ‖G_j‖B.
    All h_j ≥ ρ − b, and Σ_S λ_j(h_j − (ρ − b)) ≤ R − C_⋆(ρ − b) = e, so that Σ_S (h_j − (ρ − b)) is at most e/min λ.

    *The factors.* If ½(‖K‖² + ‖Q‖²) ≤ R, then Σ_i (σ_i(K) − σ_i(Q))² ≤ 2e, since ‖KQᵀ‖_⋆ ≤ Σ σ_i(K) σ_i(Q) (von
    Neumann) and ‖KQᵀ‖_⋆ ≥ R − e.

    *From the duals.* With w = λ/Σλ, c_j = |ℓ'(γ_i,opt)|(γ_i,opt − γ_it), D = Σ w_j log(c_j/w_j), x = (T−1)e^{−(ρ−κ)}
    and b of :func:`theorems.rounding.approximations.bend`: ⟨M, W⟩Θ_⋆ ≥ D − log1p(x) − b min(x, 1) − log n(L(W) −
    L_opt), by Jensen's inequality as in Theorem 1.

    A W whose excess risk exceeds that of ρW_⋆ by a factor e^y belongs to the sublevel set of ρ − y. So the bounds, with
    κ + y in place of κ, hold at all points of the ball with y < ρ − κ. If the solution is not proven to be the only
    one, the bounds hold with some feasible W in place of W_⋆, and with a λ whose dual value is nearly C_⋆: the claims
    are about F, and do not require its r singular values to be 1 (:mod:`.curves.nuclear_bounds`).

    **Limit.** The path under test lies in the ball and has the least risk there: f(W) = log Σ c_j e^{−h_j} is convex
    with −∇f = M(W), so that min f ≥ f(W) − (R‖M(W)‖_op − ⟨M(W), W⟩) at any W (Frank and Wolfe), and log n(L − L_opt) is
    at least f − log1p(x) − b min(x, 1). So the path has the bounds above. As e = R − C_⋆(D − …) from the duals is
    bounded, dist(W̄(R)/R, 𝒲_⋆Θ_⋆) = O(ρ^−½) (path-turns); the path is followed to ρ = 1e6.

    **Sharp.** If W_⋆ = U1 P V1ᵀ is the only solution, P ≻ 0, and λ positive on all tight constraints, then
    W̄(R) = ρW_⋆ + o + O(1/ρ) with o in closed form (:mod:`.curves.nuclear_limit`). The claim is checked at the radii at
    which ρ·g, and ρ·(h − 1) for constraints that are not tight, are large.
    """
    yield from premises(query_claims(case, under_test))
    data, problem = case.queried, case.problem
    assert data is not None
    solution = under_test[nuclear_max_margin](data.keys, problem.optimal)
    if isinstance(solution, Infeasible):
        end_as_infeasible(problem, problem.optimal, solution, SVM_IS_OPTIMAL, svm="ATT-SVM⋆")
    certificate = NuclearCertificate(data, problem.optimal, solution)
    optimal = nuclear_claim(certificate, SVM_IS_OPTIMAL)
    yield from premises(optimal)
    if optimal.verdict is not Verdict.UPHELD:
        raise Ended(optimal.name)
    bounds, kappa = NuclearBounds(problem, certificate), log_kappa(problem)
    if not kappa.value < 1 / EPS:
        raise Undecided(MARGIN, f"κ = {kappa.value:.3g}: at ρ = κ the rounding error of a logit exceeds 1")
    yield from _sublevel(bounds, kappa, under_test, case.rng())
    if solution.exact is not None:
        radii = np.array([rho for rho in PATH_RADII if exact_to_rounding(problem, float(kappa.value), rho)])
        if radii.size == 0:
            yield undecided_claim(TURNS, f"κ = {kappa.value:.3g}: the path turns only beyond ρ = 1e6", Form.LIMIT)
            return
        yield from _on_the_path(bounds, kappa, under_test, radii)


def _sublevel(
    bounds: NuclearBounds, kappa: Numbers, under_test: Implementation, rng: np.random.Generator
) -> Iterator[Claim]:
    """Yield the claims of the statement's part "Effective" at factors (K, Q) near the factors of ρW_⋆."""
    rho = np.repeat(float(kappa.value) * np.array(SUBLEVEL_RADII), POINTS)
    K, Q = nuclear_points(bounds, rho, float(kappa.value), rng)
    least = _least_margin(bounds, K @ Q.mT, rho, kappa, under_test, MARGIN)
    # Leave out points with y ≥ ρ − κ (y: the log-excess beyond that of ρW_⋆): the bounds do not hold there.
    inside = least.value - least.error > 0
    K, Q, rho, least = K[inside], Q[inside], rho[inside], least[inside]
    W, R, options = K @ Q.mT, rho * bounds.most, {"points": "point of the ball"}
    margins = bounds.margins(W)

    # Claim h_it(W) ≥ ρ − κ − y for all margins.
    yield at_least(MARGIN, Form.EFFECTIVE, np.min(margins, axis=1), least, **options)
    round_off: dict[str, Any] = {"rounding": bounds.rounding(R), "why": NUCLEAR_ROUNDING, "scale": R, **options}
    e = R - bounds.least * (least.value - least.error)
    log_excess = log_excess_of(under_test, bounds.problem, _flat(W), FROM_DUALS)
    yield _from_duals(bounds, margins, least, log_excess)

    # Claim Σ (σ_i(K) − σ_i(Q))² ≤ 2e for the singular values of the factors.
    apart = _singular_values(K) - _singular_values(Q)
    yield at_least(BALANCE, Form.EFFECTIVE, 2 * e, (apart**2).sum(axis=1), **round_off)
    yield at_least(FACE, Form.EFFECTIVE, bounds.from_face(R, e), bounds.face_distance(W), **round_off)
    if bounds.svm.exact is not None:
        distance = np.linalg.norm(W - rho[:, None, None] * bounds.svm.W, axis=(1, 2))
        beyond = rho - (least.value - least.error)
        yield at_least(SOLUTION, Form.EFFECTIVE, bounds.from_solution(R, e, beyond), distance, **round_off)


def _on_the_path(
    bounds: NuclearBounds, kappa: Numbers, under_test: Implementation, radii: Float64[np.ndarray, "r"]
) -> Iterator[Claim]:
    """Yield the claims on the path under test at the radii ρ = ``radii``."""
    problem, svm = bounds.problem, bounds.svm
    path = under_test[nuclear_path](problem, svm, radii)
    (d, e), r = svm.W.shape, len(radii)
    if path.K.shape[:2] != (r, d) or path.Q.shape[:2] != (r, e) or path.K.shape[2] != path.Q.shape[2]:
        raise NotANumber(IN_BALL, "the path has no factors at each radius", Form.EXACT)
    if not np.array_equal(path.rho, radii) or len(path.reasons) != r:
        raise Refuted(IN_BALL, f"the path has the radii ρ = {path.rho}, but {radii} were requested", Form.EXACT)
    other = under_test.replaces(nuclear_path)
    reference = (lambda: nuclear_path(problem, svm, radii).reasons) if other else None
    if missing := missing_claim(IN_BALL, path.reasons, reference):
        yield missing
    reached = np.array([not why for why in path.reasons])
    if not reached.any():
        return
    rho, K, Q = radii[reached], path.K[reached], path.Q[reached]
    if not (np.isfinite(K).all() and np.isfinite(Q).all()):
        raise NotANumber(IN_BALL, "the path is not finite", Form.EXACT)
    W, R, options = K @ Q.mT, rho * bounds.most, {"points": "radius"}
    room = 16 * (d + e) * EPS * R
    yield at_least(IN_BALL, Form.EXACT, R, half_squares(K, Q), rounding=room, why=NUCLEAR_ROUNDING, scale=R, **options)

    margins, log_excess = bounds.margins(W), log_excess_of(under_test, problem, _flat(W), MINIMAL)
    least = _least_margin(bounds, W, rho, kappa, under_test, PATH_MARGIN)
    yield _minimal(bounds, path.offsets[reached], log_excess, least, rho)
    yield at_least(PATH_MARGIN, Form.EFFECTIVE, np.min(margins, axis=1), least, scale=rho, **options)

    # Take the smaller of the two bounds e: from the margins or from the duals.
    low = least.value - least.error
    dual = _dual_bound(bounds, least, log_excess)
    e_path = R - bounds.least * np.maximum(low, dual.value - dual.error)
    distance = np.linalg.norm(W - rho[:, None, None] * svm.W, axis=(1, 2))
    limit = bounds.from_solution(R, e_path, rho - low)
    yield at_least(
        TURNS,
        Form.LIMIT,
        limit / R,
        distance / R,
        rounding=bounds.rounding(R) / R,
        why=NUCLEAR_ROUNDING,
        scale=1.0,
        **options,
    )
    yield from _in_the_limit(bounds, rho, W)


def _minimal(
    bounds: NuclearBounds,
    offsets: Float64[np.ndarray, "r d e"],
    log_excess: Numbers,
    least: Numbers,
    rho: Float64[np.ndarray, "r"],
) -> Claim:
    """Claim that each W of the path minimises the risk: log n(L(W) − L_opt) is at most its infimum over the ball.

    The infimum is at least f(W') − (R‖M(W')‖_op − ⟨M(W'), W'⟩) − log1p(x) − b min(x, 1), where W' = ρW_⋆ + o with the
    offset o that the path reports; f, M, x and b are those of the statement. The margins of W' are h_j = ρ + ρ(m_j − 1)
    + ⟨G_j, o⟩, where m_j are the margins of W_⋆. The h_j are computed without the cancellation that the floats of W
    would cause.
    """
    problem, svm, (a, z, _) = bounds.problem, bounds.svm, bounds.certificate.floats
    assert svm.exact is not None
    beyond = np.array([float((m - 1).mid()) for m in svm.exact.margins])
    beside = rho[:, None] * beyond + np.einsum("rab,ja,jb->rj", offsets, a, z)
    log_costs = log_costs_of(problem, svm)
    total = np.logaddexp.reduce(log_costs - beside, axis=1)
    weights = np.exp(log_costs - beside - total[:, None])
    M = np.einsum("rj,ja,jb->rab", weights, a, z)
    lost = rho * (bounds.most * np.linalg.norm(M, ord=2, axis=(1, 2)) - 1) - np.vecdot(weights, beside)
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(z, axis=1)
    large = 1 + rho * bounds.most * (weights @ sizes) + np.abs(log_costs).max()
    of_offset = rho * bounds.most * (weights @ sizes**2) * np.linalg.norm(offsets, axis=(1, 2))
    rounding = (64 * (len(a) + sum(svm.W.shape)) * large + 32 * sum(svm.W.shape) * of_offset) * EPS
    infimum = approximate(total - lost - rho, rounding) - _normaliser_loss(bounds, least)
    mine = log_excess + np.log(exact(problem.n))
    return at_least(MINIMAL, Form.EXACT, infimum, mine, scale=1.0, why=NUCLEAR_PATH_GAP, points="radius")


def _in_the_limit(
    bounds: NuclearBounds, rho: Float64[np.ndarray, "r"], W: Float64[np.ndarray, "r d e"]
) -> Iterator[Claim]:
    """Claim that W̄(R) − ρW_⋆ is near the offset o at radii ρ that are large enough."""
    problem, svm = bounds.problem, bounds.svm
    assert svm.gap is not None
    offsets = NuclearOffsets.of(svm, log_costs_of(problem, svm))
    slack = float(np.min(offsets.beyond[offsets.rest], initial=np.inf))
    limit = offset_in_closed_form(bounds, offsets.log_costs)
    size = max(float(np.linalg.norm(limit.value)), bounds.most)
    deviations = []
    for radius, point in zip(rho.tolist(), W, strict=True):
        first, second = corrections(offsets, radius)
        resolved = radius * slack - np.log(radius) >= RESOLVED and radius * svm.gap >= RESOLVED
        if resolved and first <= NEAR * size and (second <= first / 4 or second <= EPS * size):
            rounding = 16 * sum(point.shape) * EPS * radius * bounds.most + limit.rounding
            deviations.append((np.linalg.norm(point - radius * svm.W - limit.value), first + 2 * second + rounding))
    if deviations:
        apart, allowed = np.array(deviations).T
        yield at_least(
            OFFSET, Form.SHARP, 0.0, apart, rounding=allowed, why=NUCLEAR_OFFSET, scale=size, points="radius"
        )


def _least_margin(
    bounds: NuclearBounds,
    W: Float64[np.ndarray, "m d e"],
    rho: Float64[np.ndarray, "m"],
    kappa: Numbers,
    under_test: Implementation,
    claim: str,
) -> Numbers:
    """Return the lower bound ρ' − κ − y of the margins of W.

    ρ' ≥ ρ is the least margin of ρW_⋆, and y ≥ 0 is the log-excess log n(L − L_opt) at W minus that at ρW_⋆.
    """
    radii, radius_index = np.unique(rho, return_inverse=True)
    edge = radii[:, None, None] * bounds.svm.W
    log_edge = log_excess_of(under_test, bounds.problem, _flat(edge), claim)[radius_index]
    over = np.maximum(log_excess_of(under_test, bounds.problem, _flat(W), claim) - log_edge, 0.0)
    return np.min(bounds.margins(edge), axis=1)[radius_index] - over - kappa


def _normaliser_loss(bounds: NuclearBounds, least: Numbers) -> Numbers:
    """Return log1p(x) + b min(x, 1) with x = (T−1)e^{−least} and the statement's b, if all margins are ≥ ``least``."""
    problem = bounds.problem
    x = (problem.T - 1) * np.exp(-np.maximum(least, 0.0))
    return np.log1p(x) + bend(problem.loss, problem.scores.max(axis=1), problem.gaps().max(axis=1)) * np.minimum(x, 1.0)


def _dual_bound(bounds: NuclearBounds, least: Numbers, log_excess: Numbers) -> Numbers:
    """Return the lower bound D − log1p(x) − b min(x, 1) − log n(L(W) − L_opt) of ⟨M, W⟩Θ_⋆ (symbols: the statement)."""
    support = bounds.duals > 0
    w = exact(bounds.duals[support])
    w = w / np.sum(w)
    costs = log_costs_of(bounds.problem, bounds.svm)[support]
    log_costs = approximate(costs, 8 * EPS * (1 + np.abs(costs)))
    D = np.sum(w * (log_costs - np.log(w)))
    return D - _normaliser_loss(bounds, least) - log_excess - np.log(exact(bounds.problem.n))


def _from_duals(bounds: NuclearBounds, margins: Numbers, least: Numbers, log_excess: Numbers) -> Claim:
    """Claim that ⟨M, W⟩Θ_⋆ = Σ w_j h_j is at least the bound from the duals, with the statement's symbols."""
    w = exact(bounds.duals)
    along, bound = (margins @ w) / np.sum(w), _dual_bound(bounds, least, log_excess)
    return at_least(FROM_DUALS, Form.EFFECTIVE, along, bound, points="point of the ball")


def _singular_values(x: Float64[np.ndarray, "m d k"]) -> Float64[np.ndarray, "m k"]:
    """Return the k singular values of each matrix in descending order, including zeros."""
    singular = np.linalg.svd(x, compute_uv=False)
    return np.pad(singular, ((0, 0), (0, x.shape[2] - singular.shape[1])))


def _flat(W: Float64[np.ndarray, "m d e"]) -> Numbers:
    """Return the vectors vec W as points of the problem, without rounding errors."""
    return exact(W.reshape(len(W), W.shape[1] * W.shape[2]))
