"""The regularization path of next-token prediction: as the ball grows, W turns to W^mm, and P_FW converges to W⋆.

Main result: Theorem 1 of arXiv 2402.18551 with explicit bounds at every radius, and without its two conditions.

Reference: arXiv 2402.18551, (8), Theorem 1, Lemma 4.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.next_token.assumptions import SOMETHING_APART
from generators.next_token.cases import cases_with_something_apart
from generators.next_tokens import NextTokens
from reference_attention.next_token.next_token_path import next_token_path
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Ended, Form, NotANumber, Refuted, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.next_token.limits import LIMIT_PREMISES, Limits, certify_limits
from theorems.next_token.loss_parts import LossParts
from theorems.next_token.sublevel_bounds import finite_bound, kappa, least_margin_bound, margin_bound, probe_points

IS_MINIMAL = premise("path-point-minimises-over-its-ball")
IS_ASKED_FOR = premise("path-point-has-the-multiplier-asked-for")
BELOW_RAY = sharper("path-is-below-the-ray")
SETTLES = stated_claim("part-in-f-comes-to-its-limit", when="where F ≠ 0")
TURNS = stated_claim("path-turns-to-theta-mm", when="where the ball is so large that all margins are positive")
SEPARATES = sharper("margins-are-at-least-r-less-kappa", when="where E(r) ≤ π_min")
SUBLEVEL_F = sharper("sublevel-set-bounds-the-part-in-f", when="where F ≠ 0")
SUBLEVEL_M = sharper("sublevel-set-bounds-margins")
SUBLEVEL_C = sharper("sublevel-set-bounds-the-angle", when="where margins of a point have positive lower bounds")

GAP = 1e-6
"""The largest accepted excess of a path point's loss over the minimum in its ball, as a share of L − L_⋆ there; also
the accepted relative error of the multiplier.

Newton's method reaches 1e-11."""
LOGS = np.arange(-4.0, 42.0, 3.0)
"""The values of −log μ at the path's points, with μ the multiplier of the ball, before random shifts of up to −2.

In the first ball the loss is hardly below its value at 0; the excess loss in the last ball is below e^−41 times that in
the first.
"""
POINTS = 40


@statement(
    "ntp-path",
    "The regularization path of next tokens",
    source="2402.18551, Theorem 1, Lemma 4",
    claims=(
        *LIMIT_PREMISES,
        *(IS_MINIMAL, IS_ASKED_FOR, BELOW_RAY, SETTLES, TURNS, SEPARATES),
        *(SUBLEVEL_F, SUBLEVEL_M, SUBLEVEL_C),
    ),
    assumptions=(SOMETHING_APART,),
    about=NextTokens,
    cases=cases_with_something_apart,
    kernel=SVM_ONLY,
)
def ntp_path(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """**Theorem 1.** Let Ŵ_B = argmin CE(W) over ‖W‖_F ≤ B.

    If the data are NTP-compatible and NTP-separable, then cos(Ŵ_B, W^mm) → 1 and P_F(Ŵ_B) → W⋆ as B → ∞.

    Here the theorem is proved for any data with some alternative off Ŝ, with explicit bounds, in the notation of
    ntp-extended-supports. With λ_H the least eigenvalue of H = ∇²L_fin(θ_⋆) on F, D_F the largest diameter of {a_jv : v
    ∈ Ŝ_j}, D_c the largest ‖P_F(a_jv − a_jz)‖, v ∉ Ŝ_j, z ∈ Ŝ_j, and τ(s) = s/2 + √(s²/4 + 2s), every θ with L(θ) − L_⋆
    ≤ E has

        (F) D_F‖P_F θ − θ_⋆‖ ≤ τ(E D_F²/λ_H) =: τ,
        (M) g_jv·θ_⊥ ≥ log w⋆_jv − (D_c/D_F)τ − log(e^{E/π_j} − 1) for v ∉ Ŝ_j, which is ≥ r − κ if E = E(r) ≤ π_min,
            κ = log((e − 1)ω/(π_min w⋆_min)) + (D_c/D_F)τ,
        (C) cos(θ, θ_mm) ≥ μ‖θ_mm‖/‖θ‖ if the least bound μ of (M) is positive.

    Since L(Ŵ_B) ≤ L(θ_⋆ + rθ_mm) with r chosen so that ‖θ_⋆ + rθ_mm‖ = B, (F), (M) and (C) hold for Ŵ_B with E = E(r) ≤
    ωe^{−r}. As B/‖θ_mm‖ − r → 0, cos(Ŵ_B, θ_mm) = 1 − O(1/B), which proves Theorem 1.

    **F, M.** Both terms of L − L_⋆ = (L_fin − L_⋆) + Σπ_j log(1 + x_j) are at most E. By self-concordance L_fin − L_⋆
    ≥ (λ_H/D_F²)(e^{−t} + t − 1) ≥ (λ_H/D_F²)t²/(2 + t), t = D_F‖P_F θ − θ_⋆‖. And w_jv e^{−g_jv·θ_⊥} ≤ x_j ≤
    e^{E/π_j} − 1, where log w_jv ≥ log w⋆_jv − D_c‖P_F θ − θ_⋆‖; e^x − 1 ≤ (e − 1)x for x ≤ 1, E ≤ ωe^{−r}. **C.**
    θ_⊥/μ satisfies the constraints of NTP-SVM, so ⟨θ_⊥, θ_mm⟩ ≥ μ‖θ_mm‖².  (Ŵ_B is unique though CE is not strictly
    convex: a minimiser lies on the sphere and orthogonal to CE's kernel.)
    """
    limits = yield from certify_limits(case.problem, under_test)
    rng = case.rng()
    x, y = probe_points(limits, rng, POINTS)
    yield from sublevel_claims(LossParts(limits, x, y))
    multipliers = np.exp(-LOGS - rng.uniform(0.0, 2.0, len(LOGS)))
    at = yield from follow_path(limits, under_test, multipliers)
    yield from path_claims(at)


def follow_path(
    limits: Limits, under_test: Implementation, multipliers: Float64[np.ndarray, "b"]
) -> Generator[Claim, None, LossParts]:
    """Yield the claims that the points of the path under test are optimal, and return the points.

    Each point must minimise the loss over its ball and have the requested multiplier. Points that the implementation
    reports as not computed (``lost``) are left out.

    Raises:
        Refuted: the arrays have the wrong shape.
        NotANumber: a point is not finite.
        Ended: a claim is false, or the implementation found no point.
    """
    run = under_test[next_token_path](limits.minimum, limits.svm, multipliers)
    split, points = limits.split, len(multipliers)
    if run.x.shape != (points, 1, split.dimension) or run.y.shape[:2] != (points, 1):
        raise Refuted(IS_ASKED_FOR, f"points of shape {run.x.shape} and {run.y.shape} for {points} multipliers")
    reached = np.array([k for k in range(points) if k not in run.lost], dtype=np.int64)
    if not (np.isfinite(run.x[reached]).all() and np.isfinite(run.y[reached]).all()):
        raise NotANumber(IS_MINIMAL, "a point of the path is not finite")
    for why in list(run.lost.values())[:1]:
        yield undecided_claim(IS_MINIMAL, f"{len(run.lost)} of {points} points: {why}", not_found=True)
    if not len(reached):
        raise Ended(IS_MINIMAL)
    at = LossParts(limits, run.x[reached, 0], run.y[reached, 0])
    for claim in (minimal_claim(at), multiplier_claim(at, multipliers[reached])):
        yield claim
        if claim.verdict is Verdict.FALSIFIED:
            raise Ended(claim.name)
    return at


def multiplier_claim(at: LossParts, multipliers: Float64[np.ndarray, "b"]) -> Claim:
    """Claim that −⟨∇L, θ⟩/‖θ‖² equals, up to :data:`GAP`, the requested multiplier, which determines the radius.

    L + (μ/2)‖θ‖² is strongly convex, so that no θ of another radius minimises it.
    """
    recomputed: Any = -np.vecdot(at.gradient, at.theta) / at.norm**2
    expected: Any = exact(multipliers)
    return at_least(IS_ASKED_FOR, Form.EXACT, GAP * expected, np.abs(recomputed - expected), points="multiplier")


def minimal_claim(at: LossParts) -> Claim:
    """Claim 2‖θ‖‖∇L + μθ‖ ≤ :data:`GAP` (L(θ) − L_⋆), so that no loss in the ball of radius ‖θ‖ is lower by more.

    For θ' in the ball and any μ ≥ 0, L(θ') ≥ L(θ) + ⟨∇L, θ' − θ⟩ ≥ L(θ) − ⟨∇L, θ⟩ − ‖θ‖‖∇L‖, and with ∇L = e − μθ
    the last two terms are at least −2‖θ‖‖e‖.
    """
    along = np.vecdot(value_of(at.gradient), value_of(at.theta))
    mu = exact(np.maximum(-along / value_of(at.norm) ** 2, 0.0))
    gap = 2 * at.norm * np.linalg.norm(at.gradient + mu[:, None] * at.theta, axis=-1)
    return at_least(IS_MINIMAL, Form.EXACT, GAP * at.excess, gap, points="radius")


def path_claims(at: LossParts) -> Iterator[Claim]:
    """Yield the statement's claims (F), (M), (C) at points of radius B = ‖θ‖ ≥ ‖θ_⋆‖, with E = E(r) of this radius."""
    limits = at.limits
    square: Any = at.norm**2 - limits.origin_norm**2
    large = np.flatnonzero(value_of(square) > np.asarray(square.error))
    if not len(large):
        yield undecided_claim(BELOW_RAY, "no ball of the path contains θ_⋆", not_found=True)
        return
    at = LossParts(limits, at.x[large], at.y[large])
    # A smaller r, for which θ_⋆ + rθ_mm lies inside the ball, makes the claim weaker.
    upper = np.sqrt(square[large]) / limits.ray_norm
    r = np.maximum(value_of(upper) - np.asarray(upper.error), 0.0) * (1 - 1e-15)
    on_ray = limits.excess_on_ray(r)
    yield at_least(BELOW_RAY, Form.EFFECTIVE, on_ray * (1 + GAP), at.excess * (1 - GAP), points="radius")
    bound = on_ray * (1 + 3 * GAP)
    if limits.split.dimension:
        yield at_least(SETTLES, Form.EFFECTIVE, finite_bound(limits, bound), limits.span * at.inside_norm)
    yield from turn_claim(TURNS, at, bound)
    least = np.min(at.margins, axis=(-2, -1))
    small = np.flatnonzero(value_of(bound) + np.asarray(bound.error) <= value_of(limits.weights).min() * (1 - 1e-15))
    if len(small):
        enough = exact(r[small]) - kappa(limits, bound[small]) - np.log1p(exact(3 * GAP))
        yield at_least(SEPARATES, Form.EFFECTIVE, least[small], enough, points="radius")


def turn_claim(name: str, at: LossParts, excess: Any) -> Iterator[Claim]:
    """Yield the statement's claim (C) at the points where the smallest bound of (M) is positive."""
    limits, least = at.limits, least_margin_bound(at.limits, excess)
    positive = np.flatnonzero(value_of(least) > np.asarray(least.error))
    if len(positive):
        bound = least * limits.ray_norm / at.norm
        yield at_least(name, Form.EFFECTIVE, (at.along / at.norm)[positive], bound[positive])


def sublevel_claims(at: LossParts) -> Iterator[Claim]:
    """Yield the statement's claims (F), (M) and (C) at points θ, with E = L(θ) − L_⋆."""
    limits, excess = at.limits, at.excess
    if limits.split.dimension:
        yield at_least(SUBLEVEL_F, Form.EFFECTIVE, finite_bound(limits, excess), limits.span * at.inside_norm)
    masked = np.broadcast_to(limits.others, at.margins.shape)
    yield at_least(SUBLEVEL_M, Form.EFFECTIVE, at.margins[masked], margin_bound(limits, excess)[masked])
    yield from turn_claim(SUBLEVEL_C, at, excess)
