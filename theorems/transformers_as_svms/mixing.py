"""Attention that mixes tokens: W grows along the solution of Gen-SVM; a bounded part W_fin sets the ratios of weights.

References: *Transformers as Support Vector Machines*, Section 6: W_fin, (Gen-SVM), W(k) ≈ W_fin + ‖W(k)‖ W̄^mm.
"""

from __future__ import annotations

from collections.abc import Iterator

from flint import arb, ctx
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.mixing_assumptions import exact_scores, penalty_of
from generators.mixing_cases import MIXING, mixing_cases
from reference_attention.optimal_attention import optimal_attention
from reference_attention.paths.mixing_path import mixing_path
from reference_attention.svm.finite_part import finite_part, mixing_offset
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from theorems.core.claim import Claim, Ended, Form, Refuted, Undecided, Verdict
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.dataset_claims import query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.curves.missing_points import missing_claim
from theorems.transformers_as_svms.attention_claims import RISK_IS_QUADRATIC, attention_claim, quadratic_risk_claim
from theorems.transformers_as_svms.ball_claims import balls_at_least
from theorems.transformers_as_svms.mixing_numbers import ExcessBound, Mixing, balls, inner
from theorems.transformers_as_svms.mixing_path_numbers import PathPoint, path_radii
from theorems.transformers_as_svms.mixing_points import near_points, sublevel_points
from theorems.transformers_as_svms.mixing_premises import finite_part_claim, general_svm_claim
from theorems.transformers_as_svms.mixing_ray import mass_claim, ratios_claim

FOLLOWED = "Gen-SVM has positive duals at all tokens of margin 1, independent rows, and a path that is near its limit"

KEYS = premise("keys-are-outer-products")
SCORES = premise("scores-are-products")
ATTENTION = premise("attention-is-optimal")
SVM = premise("general-svm-is-optimal")
FINITE = premise("finite-part-is-least")
RAY_RATIOS = stated_claim("ratios-on-the-ray", when="a set O_i has two tokens")
RAY_MASS = stated_claim("masked-mass-on-the-ray")
RAY_EXCESS = sharper("excess-on-the-ray")
RATIOS = sharper("sublevel-ratios", when="a set O_i has two tokens")
MARGINS = sharper("sublevel-masked-margins")
ALONG = sharper("sublevel-length-from-duals")
CORRELATION = sharper("sublevel-correlation")
RADII = premise("path-has-the-radii-asked-for", when=FOLLOWED)
MULTIPLIERS = premise("path-has-its-multipliers", when=FOLLOWED)
LOWEST = premise("path-is-lowest", when=FOLLOWED)
PATH = stated_claim("path-correlation", when=FOLLOWED)
OFFSET = sharper("offset-limit", when=FOLLOWED, refines=PATH)

DEPTHS = (0.0, 1.0, 5.0, 50.0)
"""The values of r at which the excess risk on the ray W_fin + r W^mm is checked."""
OFFSET_RATE = tolerance(
    "mixing-offset-rate",
    "2 max(ρ₁²e₁, 1/max|G|)/ρ₂², where e₁ is the error at ρ₁ = ρ₂/4",
    "argued rate: the next term is O(1/ρ²), so that ρ²·error stays bounded; with a wrong limit it grows sixteenfold",
)
NEAR = 2.0**-20
"""The largest allowed distance between a point of the path under test and W̄_R, in units of ‖W^mm‖.

The same number bounds the error of the point's norm R, and the relative error of a multiplier. Newton's method is far
more accurate: a usual distance is e^{−ρ/4}. The claims allow larger errors than this number."""


def _cases() -> SearchStrategy[Case]:
    return mixing_cases(where=MIXING, attainable=True)


@statement(
    "tsvm-mixing",
    "Attention that mixes: W ≈ W_fin + ‖W‖ W̄^mm, of Gen-SVM",
    source="T-SVM, Section 6 (empirical there)",
    claims=(
        KEYS,
        SCORES,
        ATTENTION,
        RISK_IS_QUADRATIC,
        SVM,
        FINITE,
        RAY_RATIOS,
        RAY_MASS,
        RAY_EXCESS,
        RATIOS,
        MARGINS,
        ALONG,
        CORRELATION,
        RADII,
        MULTIPLIERS,
        LOWEST,
        PATH,
        OFFSET,
    ),
    assumptions=(
        "queries-given",
        "quadratic-head",
        "orthonormal-tokens",
        "decided-attention",
        "attainable-attention",
    ),
    cases=_cases,
    kernel=calls("its weights along W_fin + r W^mm", turn=9, differentiates=False),
    needs={
        "quadratic-head": "s⋆ depends on the λ of a quadratic head",
        "attainable-attention": "W_fin and W^mm exist only if Gen-SVM is feasible",
    },
)
def tsvm_mixing(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let s⋆_i be the optimal attention weights of input i and O_i their support.

    Let W_fin be the W of least norm with (x_it − x_iτ)ᵀ W z_i = log(s⋆_it/s⋆_iτ) on O_i × O_i, and W^mm the solution of

        (Gen-SVM)   min ‖W‖_F  s.t.  (x_it − x_iτ)ᵀ W z_i = 0 on O_i × O_i,  ≥ 1 for t ∈ O_i, τ ∉ O_i.

    The paper observes W(k) ≈ W_fin + ‖W(k)‖ W̄^mm during training. Here this is a theorem on the regularization path
    W̄_R = argmin_{‖W‖_F ≤ R} L(W) for data whose s⋆ is known: orthonormal tokens, h(x) = vᵀx − λ‖x‖², ℓ(u) = −u, Y = 1.
    Let ν be the multipliers of s⋆, with ν_iτ > 0 for τ ∉ O_i (the masked tokens). Let α_i ∈ O_i be any token,
    h_iτ(W) = (x_iα − x_iτ)ᵀ W z_i, s⋆_min the least positive weight, c_iτ = ν_iτ s⋆_iα, and b the log-ratios
    log(s⋆_iα/s⋆_it). E and G are the rows (x_iα − x_it) z_iᵀ of the tokens in O_i and of the masked tokens.

    **Exact, on the ray.** At W_fin + r W^mm, r ≥ 0, attention restricted to O_i is s⋆_i, and the masked tokens have the
    mass Σ_τ s⋆_iα e^{−h_iτ(W_fin) − r} or less. *Derivation.* E W^mm = 0; s_iτ/s_iα = e^{−h_iτ}, h_iτ(W^mm) ≥ 1,
    s_iα ≤ s⋆_iα.

    **Effective.** n(L(W) − L_⋆) = Σ_i [Σ_τ ν_iτ s_iτ + λ‖s_i − s⋆_i‖²], which on the ray is at most B e^{−r},
    B = Σ_iτ (ν_iτ + 2λ) s⋆_iα e^{−h_iτ(W_fin)}. *Derivation.* If m is the masked mass, s − s⋆ is −m s⋆ inside O_i, so
    that ‖s − s⋆‖² ≤ 2m² ≤ 2m. At *every* W with n(L(W) − L_⋆) ≤ D and ε = (D/λ)^½ ≤ s⋆_min/2:

    - logit differences inside O_i are within δ = 2√2 ε/s⋆_min of b, as |log(1 + x)| ≤ 2|x| for |x| ≤ ½, and any two
      entries of s − s⋆ have |a| + |b| ≤ √2 ε;
    - h_iτ(W) ≥ log(ν_iτ(s⋆_iα − ε)/D), as ν_iτ s_iτ ≤ D: on {L ≤ L(W_fin + r W^mm)} at least r − log(2B/c_iτ);
    - with the duals W^mm = Σ λ_j G_j + Eᵀμ and w_j = λ_j/Σλ, Σλ = ‖W^mm‖²:

          ⟨W, W^mm⟩/‖W^mm‖² ≥ Σ_j w_j log(ν_j(s⋆_α − ε)/w_j) − log D + (μᵀb − ‖μ‖₁δ)/‖W^mm‖².

      *Derivation.* ⟨W, W^mm⟩ = Σ λ_j h_j(W) + μᵀEW, h_j = log s_α − log s_j; Jensen: Σ w_j log(ν_j s_j/w_j) ≤ log D.

    So with R = ‖W_fin + r W^mm‖ every W with ‖W‖ ≤ R and L(W) ≤ L(W_fin + r W^mm) has cos(W, W^mm) ≥ (r − κ)‖W^mm‖/R,
    κ = log B − Σ_j w_j log(ν_j(s⋆_α − ε)/w_j) − (μᵀb − ‖μ‖₁δ)/‖W^mm‖²: W̄_R/R → W^mm/‖W^mm‖.

    **The path, enclosed.** Let P be a point of the computed path, of norm R. The same derivation, with any shares w, P
    in place of W^mm, and Σ w_j G_j = θP + Eᵀm + remainder, bounds log n(L − L_⋆) from below on the whole ball. With
    w_j ∝ ν_j s_j(P) the bound at P is exact up to gap = O(e^{−ρ/2}). As ⟨P, W⟩ ≤ R² − ‖W − P‖²/2 in the ball, every
    minimiser lies within (2 gap/θ)^½ of P. This does not use convexity of L. The path is computed at R = ρ‖W^mm‖ for
    several ρ; claims check that its points have these radii and that its multipliers η satisfy ∇ nL(W) + ηW = 0.

    **Sharp.** Let the tokens S of margin 1 have unique duals λ_j > 0. W̄_R without its component along W^mm tends to

        o = [E; G_S]⁺ [b; log(c_j/λ_j)]  without its component along W^mm.

    The next term is o₂/ρ, where ρ ≈ R/‖W^mm‖, E o₂ = 0, ⟨G_j, o₂⟩ = −o_j/λ_j + t with the same t for all j, and the o_j
    are the coefficients in o = Σ o_j G_j + Eᵀ….
    *Derivation.* Stationarity is Σ c_j e^{−h_j} G_j + Eᵀ… = ηW, E W = b, up to factors 1 + O(e^{−ρ}). For W = ρ W^mm +
    o its coefficients are c_j e^{−h_j} = η(ρλ_j + o_j), and h_j = ρ + ⟨G_j, o⟩. So the paper's formula has the right
    direction and ratios, but W_fin is not the whole finite part: o = W_fin iff log(c_j/λ_j) − h_j(W_fin) is the same
    for all j ∈ S.
    """
    yield from query_claims(case, under_test)
    data, lam = case.queried, penalty_of(case)
    assert data is not None, "the statement assumes queries-given"
    attention = under_test[optimal_attention](exact_scores(data), lam)
    first = attention_claim(ATTENTION, data, lam, attention)
    yield first
    yield quadratic_risk_claim(data, lam, attention, case.rng())
    if first.verdict is Verdict.FALSIFIED:
        raise Ended(first.name)
    svm = under_test[general_svm](data.keys, attention.sets, attention.first)
    if not isinstance(svm, GeneralSvm):
        raise Undecided(SVM, "Gen-SVM was reported as infeasible")
    second = general_svm_claim(SVM, data, attention, svm)
    yield second
    if second.verdict is Verdict.FALSIFIED:
        raise Ended(second.name)
    mixing = Mixing(data, lam, attention, svm, under_test[finite_part](svm, attention))
    yield finite_part_claim(FINITE, mixing)
    if mixing.level_rows:
        yield ratios_claim(RAY_RATIOS, case.problem, mixing, under_test)
    yield mass_claim(RAY_MASS, case.problem, mixing, under_test)
    yield from _sublevel_claims(case, mixing)
    yield from _path_claims(mixing, under_test)


def _sublevel_claims(case: Case, mixing: Mixing) -> Iterator[Claim]:
    with ctx.workprec(512):
        claims = list(_sublevel(case, mixing))
    yield from claims


def _sublevel(case: Case, mixing: Mixing) -> Iterator[Claim]:
    """Yield the claims that hold at every W of small excess risk, checked at points on the ray and near it."""
    svm, square = mixing.svm, arb(mixing.norm_squared)
    on_ray = [(arb(r), mixing.excess(mixing.on_the_ray(arb(r))).log()) for r in DEPTHS]
    yield balls_at_least(RAY_EXCESS, Form.EFFECTIVE, [(mixing.log_ceiling - r, log_D) for r, log_D in on_ray])
    shares = {pair: arb(dual) / square for pair, dual in svm.duals.items()}
    target = balls(svm.point)

    def bound(excess: arb, W: list[arb]) -> ExcessBound:
        return mixing.lower_bound(target, shares, excess, inner(W, W).sqrt())

    rng = case.rng()
    ratios, margins, along = [], [], []
    for W in near_points(mixing, rng):
        D = mixing.excess(W)
        epsilon, margins_of_W = mixing.spread(D), mixing.margins(W)
        ratios += [
            (mixing.deviation(epsilon), abs(margins_of_W[pair] - mixing.log_ratio(pair))) for pair in mixing.level_rows
        ]
        margins += [
            (margins_of_W[j], (arb(mixing.cost(j)) * (arb(mixing.best(j)) - epsilon)).log() - D.log())
            for j in mixing.masked_rows
        ]
        lower = bound(D, W)
        along.append((lower.slope * inner(W, target), lower.level - D.log()))
    if mixing.level_rows:
        yield balls_at_least(RATIOS, Form.EFFECTIVE, ratios, points="logit difference")
    yield balls_at_least(MARGINS, Form.EFFECTIVE, margins, points="margin")
    yield balls_at_least(ALONG, Form.EFFECTIVE, along)
    correlations = []
    for r, W in sublevel_points(mixing, rng):
        edge = mixing.on_the_ray(r)
        lower = bound((mixing.log_ceiling - r).exp(), edge)
        kappa = mixing.log_ceiling - lower.level
        length = inner(W, target) / (inner(W, W) * square).sqrt()
        correlations.append((length, (r - kappa) * (square / inner(edge, edge)).sqrt()))
    yield balls_at_least(CORRELATION, Form.EFFECTIVE, correlations, points="point of a sublevel set")


def _path_claims(mixing: Mixing, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims on two points of the path, and on their offsets if the offset has a closed form."""
    rhos = path_radii(mixing)
    if not rhos:
        return
    keys, svm, attention = mixing.data.keys, mixing.svm, mixing.attention
    points = under_test[mixing_path](keys, attention, mixing.lam, svm, rhos)
    if len(points) != len(rhos):
        raise Refuted(RADII, f"{len(points)} points at {len(rhos)} radii", Form.EXACT)

    def of_the_reference() -> list[str]:
        return [point.reason for point in mixing_path(keys, attention, mixing.lam, svm, rhos)]

    other = under_test.replaces(mixing_path)
    missing = missing_claim(RADII, [point.reason for point in points], of_the_reference if other else None)
    if missing is not None:
        yield missing
        return
    with ctx.workprec(max(point.bits for point in points)):
        on_path = [PathPoint(mixing, point.point) for point in points]
        size = arb(mixing.norm_squared).sqrt()
        radii = [(NEAR * size, abs(at.radius - arb(rho) * size)) for at, rho in zip(on_path, rhos, strict=True)]
        radii += [(arb(0), abs(arb(point.rho) - arb(rho))) for point, rho in zip(points, rhos, strict=True)]
        claims = [balls_at_least(RADII, Form.EXACT, radii, points="radius")]
        multipliers = [
            (NEAR * at.multiplier, abs(at.multiplier - point.multiplier))
            for at, point in zip(on_path, points, strict=True)
        ]
        claims.append(balls_at_least(MULTIPLIERS, Form.EXACT, multipliers, points="radius"))
        lowest = [(NEAR * size, at.distance) for at in on_path]
        claims.append(balls_at_least(LOWEST, Form.EFFECTIVE, lowest, points="radius"))
        claims.append(balls_at_least(PATH, Form.LIMIT, [at.correlation for at in on_path], points="radius"))
        offset = under_test[mixing_offset](svm, attention)
        near, far = (at.offset_error(offset) for at in on_path)
        unit = max(inner(balls(row), balls(row)) for row in mixing.masked_rows.values()).rsqrt()
        allowed = 2 * max(near * rhos[0] ** 2, unit) / rhos[1] ** 2
        limit = balls_at_least(OFFSET, Form.SHARP, [(allowed, far)], points="radius")
        claims.append(Claim(limit.name, limit.form, float((allowed - far).mid()), 0.0, OFFSET_RATE, limit.detail))
    yield from claims
