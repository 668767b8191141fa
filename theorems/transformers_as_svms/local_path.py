"""Local regularization path of W in a cone around W^mm_α: its direction converges to W^mm_α if α is locally optimal.

References: *Transformers as Support Vector Machines*, Theorem 6.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import assume
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.chosen_tokens import locally_optimal_choices
from generators.query_cases import query_cases
from reference_attention.floats import EPS
from reference_attention.paths.local_path import LocalPath, SignedLog, local_path
from reference_attention.risk import ScaledGradient, log_excess_risk, scaled_gradient
from theorems.bounded import exact, value_of
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, NotANumber, Refuted, Undecided, at_least, undecided_claim
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import FAR
from theorems.core.statement import statement
from theorems.core.svm_certificate import LOCAL_OPTIMALITY, SVM_IS_OPTIMAL, local_optimality_claim
from theorems.core.tolerances import tolerance
from theorems.curves.cone_points import INSIDE, cone_points, is_resolvable
from theorems.token_selection.local_paths.lemma_07_local_gradient_condition import resolves_cone
from theorems.token_selection.local_paths.local_constants import local_constants, resolution_failure
from theorems.transformers_as_svms.local_path_bounds import LocalPathBounds
from theorems.transformers_as_svms.nuclear_local_path import NUCLEAR_LOCAL_CLAIMS, nuclear_local_claims

LOCAL_PATH_VALUE = tolerance(
    "local-path-value",
    "the error bounds of both log-excesses, plus 64 eps (1 + |log excess| + κR)",
    "of points whose risks differ by no more than the rounding of a logit, the optimiser returns the first",
)

RESOLVED = "float64 resolves the path at one of the radii"
MARGIN = sharper("sublevel-margin")
CORRELATION = sharper("sublevel-correlation")
IN_THE_CONE = premise("path-is-in-the-cone", when=RESOLVED)
IS_LOWEST = premise("path-is-no-higher-than-its-seeds", when=RESOLVED)
PATH_MARGIN = sharper("path-margin", when=RESOLVED)
PATH_TURNS = stated_claim("path-turns", when=RESOLVED)

SUBLEVEL = (1.05, 2.0, 30.0, 1e3)
"""The radii ρ of the sublevel sets, in units of the larger of κ_α and R0/P, for the κ_α, R0 and P of the statement."""
POINTS = 60
"""The number of points of the cone that are checked per sublevel set."""
PATH_RADII = (1e2, 1e4, 1e6)
"""The radii ρ of the path; radii below κ_α or R0, or beyond the resolution of float64, are left out."""


def _is_resolved(case: Case) -> bool:
    assume(resolves_cone(case))
    return True


def _cases() -> SearchStrategy[Case]:
    return query_cases(alpha="locally-optimal").filter(_is_resolved)


@statement(
    "tsvm-local-path",
    "Local regularization path of W and of (K, Q): Frobenius and nuclear norm",
    source="T-SVM, Theorem 6",
    claims=(
        *QUERY_CLAIMS,
        SVM_IS_OPTIMAL,
        LOCAL_OPTIMALITY,
        MARGIN,
        CORRELATION,
        IN_THE_CONE,
        IS_LOWEST,
        PATH_MARGIN,
        PATH_TURNS,
        *NUCLEAR_LOCAL_CLAIMS,
    ),
    assumptions=("queries-given", "well-behaved-loss", "separable", "locally-optimal"),
    cases=_cases,
    from_data=locally_optimal_choices,
    kernel=FAR,
    needs={
        "separable": "the cone is around W^mm_α, which exists only if ATT-SVM(α) is feasible",
        "locally-optimal": "κ_α and R0 are computed from the score gaps to SVM-neighbours, which must be positive",
        "well-behaved-loss": "κ_α and R0 are computed from bounds of |ℓ'| > 0",
    },
)
def tsvm_local_path(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and α be locally optimal, and let P = ‖W^mm_α‖_F.

    There are μ and R0 such that W_R = argmin of L over cone_μ(W^mm_α) ∩ {R0 ≤ ‖W‖_F ≤ R} has W_R/R → W^mm_α/P. For the
    nuclear norm, let W_⋆ be the only solution of ATT-SVM⋆(α) and α locally optimal for W_⋆. Then W_R = argmin of L over
    cone_μ(W_⋆) ∩ {R0 ≤ ‖W‖_F, ‖W‖_⋆ ≤ R} has W_R/R → W_⋆/C_⋆.

    **Effective.** The cone is that of Lemma 7 of the first paper, for the keys vec(x zᵀ). So are the score gaps D_it =
    γ_iα − γ_it, the margins m_it of W^mm_α, and the bounds w_it of their change in the cone, per unit of ‖W‖/P. A token
    is good if D_it > 0 and harmful otherwise. N is the number of good tokens, Γ⁺ their largest and Γ⁻ their least score
    gap; c_max and c_min are the largest and the least |ℓ'| on the range of the scores, and L_α is the risk if every
    input selects α. κ_α = log(2TN c_max Γ⁺/(c_min Γ⁻)), and R0/P is the least r with c_max Σ_harmful |D_it| e^{−r(m_it
    − w_it − 1)} ≤ c_min Γ⁻/(2T). Every W of the cone with R0 ≤ ‖W‖ ≤ R = ρP and L(W) ≤ L(ρ W^mm_α) has

        m(W) = min_{i, t≠α_i} (x_iα − x_it)ᵀ W z_i ≥ ρ − κ_α    and    cos(W, W^mm_α) ≥ 1 − κ_α/ρ.

    *Derivation.* Let r = ‖W‖/P and a = m(W). Some token with a positive SVM dual has a margin of at most r at W, and
    every harmful token has a margin above r (Lemma 7). So the least margin a is that of a good token j; a ≤ r, and a >
    0. With the softmax weights s_it the mean value theorem gives n(L(W) − L_α) ≥ c_min Σ_good s_it D_it − c_max
    Σ_harmful s_it |D_it|. As s_j ≥ e^{−a}/T and s_it ≤ e^{−r(m_it − w_it)}, this is at least ½c_min Γ⁻ e^{−a}/T beyond
    R0. At ρ W^mm_α the excess n(L − L_α) is at most c_max N Γ⁺ e^{−ρ}, as all margins are at least ρ. So a ≥ ρ − κ_α.
    As W/a is feasible and W^mm_α is the projection of 0 on the feasible set, ⟨W, W^mm_α⟩ ≥ aP². If the excess at W is
    up to e^y times that at ρ W^mm_α, the bounds hold with ρ − y in place of ρ, so they are claimed at all points of the
    cone. For ρ > max(κ_α/μ, κ_α + R0/P) the minimiser lies inside the cone, beyond R0.

    **Limit.** The path under test lies in the cone and between the two radii. Its risk is at most the risk at ρ W^mm_α
    and at a point W_o of norm ρP, whose offset from the ray of W^mm_α is o, the limit of the path's offset; the search
    starts from both. No claim needs or says that the path is the minimum. So the path has the bounds above
    (path-margin). With w = λ/Σλ for the duals λ of W^mm_α, c_j = |ℓ'(γ_iα)| D_j, D = Σ w_j log(c_j/w_j), x =
    (T−1)e^{−(ρ−κ_α)}, r = ‖W_R‖/P, H = Σ_harmful |D| e^{−r(m−w)}, and the b of
    :func:`theorems.rounding.approximations.bend`, it also has (path-turns)

        1 − cos(W_R, W^mm_α) ≤ (log(n(L(W_o) − L_α) + c_max H) + ρ − D + log1p(x) + b min(x, 1))/r.

    For large ρ the right side is nearly |o|²/(2ρ²) if all neighbours have positive duals; the path is followed to ρ =
    1e6.
    *Derivation.* n(L − L_α) + c_max H ≥ Σ_good c_j e^{−a_j} e^{−b min(x,1)}/(1 + x) as in Theorem 1 of the first paper;
    Jensen's inequality over w, and Σ w_j a_j = ⟨W, W^mm_α⟩/P² = r cos, with r ≤ ρ.

    **The nuclear norm.** The cone, good and harmful tokens and R0 are as in :mod:`.curves.nuclear_local_bounds`;
    ρ = R/C_⋆. Every W of the cone with ‖W‖_F ≥ R0, ‖W‖_⋆ ≤ R and L(W) ≤ L(ρW_⋆) has m(W) ≥ ρ − κ_α with the same κ_α.
    So the bounds of ``tsvm-nuclear-path`` on the distances of W from the face of α's dual and from ρW_⋆ hold with κ_α
    in place of κ, and they imply W_R/R → W_⋆/C_⋆ (nuclear-path-turns).
    *Derivation.* Let a be the least margin of good tokens, and w the least w_j of tight constraints. Tight constraints
    belong to good tokens, so a ≤ r(1 + w); harmful tokens have margins r(m_j − w_j) ≥ r(1 + w); hence a = m(W). As
    before, n(L(W) − L_α) is at least c_min Γ⁻ e^{−a}/T − c_max Σ_harmful |D| e^{−r(m−w)}. Beyond R0 this is at least
    half of the first term, since e^{−a} ≥ e^{−r(1+w)}. At ρW_⋆, whose margins are at least ρ, n(L − L_α) is at most
    c_max N Γ⁺ e^{−ρ}.
    """
    yield from premises(query_claims(case, under_test))
    yield from nuclear_local_claims(case, under_test)
    problem = case.problem
    solution = yield from certify(problem, case.chosen_tokens, under_test)
    yield from premises(local_optimality_claim(problem, case.chosen_tokens, solution, under_test))
    constants = local_constants(problem, solution)
    if constants is None or not is_resolvable(constants, 1.0):
        raise Undecided(MARGIN, resolution_failure(constants), Form.EFFECTIVE)
    bounds = LocalPathBounds(constants, under_test)
    begin = max(float(value_of(bounds.kappa)), bounds.first)
    if not 2 * begin < bounds.last:
        why = f"max(κ, R0/P) = {begin:.3g}, but float64 resolves the logits of the cone only to ρ = {bounds.last:.3g}"
        raise Undecided(MARGIN, why, Form.EFFECTIVE)
    rng = case.rng()
    yield from _sublevel(bounds, begin, rng)
    radii = np.array([rho for rho in PATH_RADII if 1.5 * begin < rho < bounds.last])
    if radii.size:
        yield from _path(bounds, radii, int(rng.integers(2**31)))


def _sublevel(bounds: LocalPathBounds, begin: float, rng: np.random.Generator) -> Iterator[Claim]:
    """Yield the claims on margin and correlation of points W of the cone, from the risks of W and ρ W^mm_α."""
    constants = bounds.constants
    rhos = np.array([begin * factor for factor in SUBLEVEL if begin * factor < bounds.last])
    share = rng.random((len(rhos), POINTS)) ** 8
    sizes = (bounds.first * (rhos[:, None] / bounds.first) ** (1 - share)) * (1 - 1e-12) + 1e-12 * bounds.first
    points = cone_points(rng, constants, sizes.ravel() * constants.norm, constants.mu)
    edge = bounds.log_excess(rhos[:, None] * bounds.p_mm, MARGIN)
    over = np.maximum(bounds.log_excess(exact(points), MARGIN) - np.repeat(edge, POINTS), 0.0)
    least, options = np.repeat(rhos, POINTS) - over - bounds.kappa, {"points": "point of the cone"}
    yield at_least(MARGIN, Form.EFFECTIVE, bounds.margin(points), least, **options)
    _, along, _ = bounds.sizes(points)
    yield at_least(CORRELATION, Form.EFFECTIVE, along, least, **options)


def _path(bounds: LocalPathBounds, radii: Float64[np.ndarray, "r"], seed: int) -> Iterator[Claim]:
    """Yield the claims on the path under test at the radii ρ = ``radii``."""
    constants = bounds.constants
    norms = radii * constants.norm
    rays = np.stack([bounds.beside(rho) for rho in radii.tolist()])
    # At radii where the point with the offset is outside the cone, replace it by the point on the ray.
    sizes, _, nu = bounds.sizes(rays[:, 1])
    inside = (value_of(nu) <= (1 - INSIDE) * constants.mu) & (value_of(sizes) >= bounds.first)
    rays[~inside, 1] = rays[~inside, 0]
    path = follow_local_path(bounds, norms, rays.reshape(-1, constants.problem.d), seed)
    if not np.array_equal(path.norms, norms):
        raise Refuted(IN_THE_CONE, f"the path has the radii {path.norms}, but {norms} were requested", Form.EXACT)
    if path.points.shape != (len(radii), constants.problem.d) or not np.isfinite(path.points).all():
        raise NotANumber(IN_THE_CONE, "the path lacks a finite point of the right length at some radius", Form.EXACT)
    rho, along, nu = bounds.sizes(path.points)
    # Rounding in the optimiser may put a point of the cone's boundary slightly outside the cone.
    room = 64 * constants.problem.d * EPS
    slacks = np.stack(
        [constants.mu * (1 + 1e-6) + room - nu, radii * (1 + room) - rho, rho - bounds.first * (1 - room)]
    )
    scale = np.stack([np.full(len(radii), constants.mu), radii, np.full(len(radii), bounds.first)])
    yield at_least(IN_THE_CONE, Form.EXACT, slacks, 0.0, scale=scale, points="radius")
    if any(float(value_of(r)) < bounds.first for r in rho):
        yield undecided_claim(PATH_MARGIN, "a point of the path lies inside the inner radius R0", Form.EFFECTIVE)
        return
    mine = bounds.log_excess(exact(path.points), IS_LOWEST)
    theirs = bounds.log_excess(exact(rays.transpose(1, 0, 2)), IS_LOWEST)
    noise = 64 * EPS * (1 + np.abs(mine.value) + constants.problem.key_scale * norms)
    yield at_least(IS_LOWEST, Form.LIMIT, theirs, mine.widen(noise), why=LOCAL_PATH_VALUE, points="seed")
    lowest = exact(radii) - bounds.kappa
    level = np.maximum(mine - theirs[0], 0.0).error + noise
    yield at_least(
        PATH_MARGIN,
        Form.EFFECTIVE,
        np.stack([bounds.margin(path.points), along]),
        lowest.widen(level),
        scale=radii,
        why=LOCAL_PATH_VALUE,
        points="radius",
    )
    top = bounds.with_harm(theirs[1].widen(noise), rho) + radii - bounds.least_excess(lowest)
    yield at_least(PATH_TURNS, Form.LIMIT, top / rho, nu, scale=1.0, why=LOCAL_PATH_VALUE, points="radius")


def follow_local_path(
    bounds: LocalPathBounds, norms: Float64[np.ndarray, "r"], starts: Float64[np.ndarray, "s d"], seed: int
) -> LocalPath:
    """Return the local path under test; its optimiser starts from the points ``starts``."""
    problem, solution, under_test = bounds.constants.problem, bounds.constants.solution, bounds.under_test

    def excess(p: Float64[np.ndarray, "*b d"]) -> SignedLog:
        sign, size = under_test[log_excess_risk](problem.keys, problem.scores, problem.loss, p, solution.alpha)
        return np.asarray(sign, dtype=np.float64), np.asarray(size, dtype=np.float64)

    def gradient(p: Float64[np.ndarray, "*b d"]) -> ScaledGradient:
        return under_test[scaled_gradient](problem.keys, problem.scores, problem.loss, p)

    return under_test[local_path](
        problem,
        solution.p,
        solution.alpha,
        norms,
        mu=bounds.constants.mu,
        radius=bounds.first * bounds.constants.norm,
        starts=starts,
        seed=seed,
        excess=excess,
        gradient=gradient,
    )
