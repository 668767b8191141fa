"""Extended supports, the alternatives that training on next tokens cannot separate, and the loss as a sum of two parts.

Main result: for any data, extended supports replace the supports of arXiv 2402.18551; one linear program decides them.

References: derived here; arXiv 2402.18551, Definitions 2 and 3; arXiv 2403.08081.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flint import arb, ctx

from generators.next_token.cases import next_token_cases
from generators.next_tokens import NextTokens
from reference_attention.exact import to_floats
from reference_attention.floats import EPS
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import supports_by_exclusion
from reference_attention.next_token.finite_minimum import finite_minimum
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from reference_attention.next_token.split_loss import next_token_loss, split_gradient
from reference_attention.next_token.subspace_split import BITS, Split
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.claim_name import sharper
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT, tolerance
from theorems.next_token.limits import LIMIT_PREMISES, Limits, certify_limits
from theorems.next_token.loss_parts import LossParts
from theorems.next_token.sublevel_bounds import probe_points
from theorems.rounding.attention_at import Numbers

SAME_SETS = sharper("extended-supports-by-exclusion")
SEPARABLE = sharper("separable-iff-supports-are-extended")
COMPATIBLE = sharper(
    "compatible-iff-log-odds-are-attained", when="where the loss restricted to the supports has a certified minimiser"
)
TWO_PARTS = sharper("loss-is-taken-apart")
GRADIENT = sharper("gradient-is-that-of-the-two-parts")
APART = "where training rules out some alternative"
ON_RAY = sharper("loss-on-the-ray-is-below-omega-e-r", when=APART)
CORRELATES = sharper("gradient-correlates-with-theta-mm", when=APART)
NO_MORE = sharper("gradient-is-hardly-longer-along-theta", when=APART)

LOSS_ROUNDING = tolerance(
    "next-token-loss-rounding",
    "the error bounds of both sides; for a loss or gradient under test, the error bound of our own formula",
    "a correct implementation evaluates the same formulas in floats, possibly in another order",
)
POINTS = 40
ATTAINED = 2.0**-100
"""The error below which log-odds count as attained; the enclosure of the minimiser does not resolve smaller errors."""
FARTHEST = 60.0
"""The largest ‖θ‖ at which the loss is compared with its definition; up to there the excess exceeds its rounding error.
"""


@statement(
    "ntp-extended-supports",
    "Extended supports, and the loss of next-token prediction in two parts",
    source="own",
    claims=(*LIMIT_PREMISES, SAME_SETS, SEPARABLE, COMPATIBLE, TWO_PARTS, GRADIENT, ON_RAY, CORRELATES, NO_MORE),
    about=NextTokens,
    cases=next_token_cases,
    kernel=SVM_ONLY,
)
def ntp_extended_supports(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """Let contexts j have weights π_j > 0 and alternatives v ∈ V_j with vectors a_jv and multiplicities m_jv.

    Let p_jv be the targets, with support S_j, and lse = log Σ exp; ℓ_jv(θ) = a_jv·θ + log m_jv, L(θ) = Σπ_j[lse_{V_j}
    ℓ_jv − Σ_v p_jvℓ_jv]. Next-token prediction has a_jv = vec(e_v h_jᵀ) and θ = vec(W); attention vec(e_v e_kᵀ)
    (ntp-attention).

    C = {U : (a_jz − a_jv)·U ≥ 0, z ∈ S_j, v ∈ V_j}; Ŝ_j consists of S_j and every v with (a_jz − a_jv)·U = 0 for all U
    ∈ C; F = span{a_jv − a_jz : v, z ∈ Ŝ_j}; g_jv = P_⊥(a_jz − a_jv), the same for all z ∈ Ŝ_j; θ_mm = argmin ‖θ‖ over θ
    ∈ F^⊥ with g_jv·θ ≥ 1 off Ŝ; L_fin(θ) = Σπ_j[lse_{Ŝ_j} ℓ − Σpℓ], θ_⋆ its minimiser on F. Then

    1. one linear program decides Ŝ: max Σt subject to (a_jz − a_jv)·U ≥ t_jv ∈ [0, 1]; so does one linear program per
       alternative;
    2. Ŝ = S if and only if some U has (a_jz − a_jv)·U = 0 for v ∈ S_j and ≥ 1 for v ∉ S_j (NTP-separability); some θ
       has the log-odds of the observed tokens (NTP-compatibility) if and only if the loss restricted to the S_j has as
       its minimum the entropy H of the p_j, weighted by π;
    3. L(θ) = L_fin(P_F θ) + Σπ_j log(1 + x_j), x_j = Σ_{v∉Ŝ_j} w_jv e^{−g_jv·θ_⊥}, and log w_jv = ℓ_jv − lse_{Ŝ_j} at
       P_F θ;
    4. L_⋆ = inf L = L_fin(θ_⋆), and L(θ_⋆ + rθ_mm) − L_⋆ ≤ ωe^{−r}, ω = Σπ_j w_jv(θ_⋆);
    5. with Ω = Σπ_j x_j/(1 + x_j): −⟨∇L, θ_mm⟩ ≥ Ω and −⟨∇L, θ_⊥⟩ ≤ (m + K)Ω everywhere, m the least margin, K ≥ 0 as
       defined below.

    **1.** C is a cone: if U separates one pair and U' another, U + U' separates both. So t_jv is 0 or 1 at the optimum,
    and 1 if some U ∈ C separates v. For the other v, λ > 0 with Σλ(a_jz − a_jv) = 0, up to rows with v ∈ S_j, proves
    that they tie.
    **3.** For v, z ∈ Ŝ_j, a_jv − a_jz ∈ F, so that lse over Ŝ_j depends only on P_F θ, except for a common term
    a_jz·θ_⊥.
    **4.** θ_⋆ exists and is unique: let L_fin recede in a direction U ∈ F, and let U_0 ∈ C separate all alternatives
    off Ŝ. Then U + R·U_0 ∈ C for large R, so it ties Ŝ; hence U ⊥ F, and U = 0. Every g_jv·θ_mm ≥ 1, log(1 + x) ≤ x.
    **5.** −P_⊥∇L = Σπ_j s_jv g_jv over v ∉ Ŝ_j, with Σ_v s_jv = x_j/(1 + x_j). With C_jv = π_j w_jv/(1 + x_j) and h =
    g·θ_⊥, −⟨∇L, θ_⊥⟩/Ω is the mean of h under weights ∝ Ce^{−h}, which minimise the mean of h plus the relative entropy
    to C (Gibbs). So this mean is at most h_jv + log(ΣC/C_jv) for every pair; m + K is the least of these bounds.
    """
    problem = case.problem
    limits = yield from certify_limits(problem, under_test)
    sets = limits.supports.sets
    same = bool(np.array_equal(supports_by_exclusion(problem).sets, sets))
    yield Claim(SAME_SETS, Form.EXACT, 0.0 if same else -1.0, 0.0, EXACT, "" if same else "another Ŝ by exclusion")
    narrow = under_test[next_token_svm](problem, problem.supports)
    right = isinstance(narrow, NextTokenSvm) == limits.supports.separable(problem)
    if isinstance(narrow, NextTokenSvm):
        right = right and not narrow.error(problem)
    yield Claim(SEPARABLE, Form.EXACT, 0.0 if right else -1.0, 0.0, EXACT, f"Ŝ has {int(sets.sum())} alternatives")
    yield from compatible_claim(limits, under_test)
    x, y = probe_points(limits, case.rng(), POINTS)
    at = LossParts(limits, x, y)
    yield from loss_claims(at, under_test)
    if not limits.apart:
        return
    r = np.linspace(0.0, FARTHEST, 13)
    ray = LossParts(limits, np.zeros((len(r), x.shape[1])), r[:, None] * value_of(limits.ray))
    # E(r) = L(θ_⋆ + rθ_mm) − L_⋆ is evaluated from exact margins; the loss is evaluated at rounded points of the ray.
    yield at_least(ON_RAY, Form.EFFECTIVE, limits.log_total - exact(r), np.log(limits.excess_on_ray(r)), points="r")
    yield from correlation_claims(at)
    yield from correlation_claims(ray)


def compatible_claim(limits: Limits, under_test: Implementation) -> Iterator[Claim]:
    """Claim that the exact decision on compatibility agrees with log q⋆_jv − log p_jv on S_j.

    q⋆ is the softmax at the minimiser of the loss over S_j, which is enclosed to 2^−200. A difference above
    :data:`ATTAINED` proves that no θ attains the log-odds. A smaller difference proves nothing; then the answer
    "incompatible" is undecided.
    """
    problem = limits.problem
    minimum = limits.minimum
    if not limits.supports.separable(problem):
        minimum = finite_minimum(Split.of(problem, problem.supports))
    if minimum.lost:
        return
    answer = under_test[compatible](problem)
    with ctx.workprec(BITS):
        gaps = [
            abs(minimum.at.log_shares[j, v] - arb(problem.targets[j][v]).log())
            for j, v in np.argwhere(problem.supports).tolist()
        ]
        largest = max(float(gap.lower()) for gap in gaps)
    if not answer and largest <= ATTAINED:
        yield undecided_claim(
            COMPATIBLE, f"reported as incompatible, but log-odds are attained with an error of {largest:.3g}"
        )
        return
    right = answer == (largest <= ATTAINED)
    yield Claim(
        COMPATIBLE,
        Form.EXACT,
        0.0 if right else -1.0,
        0.0,
        EXACT,
        f"log-odds are attained with an error of {largest:.3g}",
    )


def loss_claims(at: LossParts, under_test: Implementation) -> Iterator[Claim]:
    """Claim that near 0 the loss under test is the sum of the two parts, and that the gradient is right everywhere.

    The loss is compared where ‖θ‖ ≤ :data:`FARTHEST`: farther out its excess is below its rounding error.
    """
    near = np.flatnonzero(value_of(at.norm) <= FARTHEST)
    point = theta_of(at, near)
    floats = value_of(point)
    direct = loss_from_logits(at.limits, point)
    loss = np.asarray(under_test[next_token_loss](at.limits.problem, floats))
    parts: Any = at.limits.loss_at_infinity + at.excess
    if len(near):
        computed = exact(loss).widen(2 * direct.error + 8 * EPS * np.abs(loss))
        yield equal(TWO_PARTS, computed, parts[near])
    along, away = under_test[split_gradient](at.limits.minimum, at.x, at.y)
    ours = at.gradient
    theirs = exact(np.concatenate([along, away], axis=-1)).widen(2 * ours.error)
    yield equal(GRADIENT, theirs, ours, points="coordinate")


def theta_of(at: LossParts, index: Any) -> Numbers:
    """Return θ in the original coordinates, with the rounding errors of the change of coordinates, (k, D)."""
    coordinates = exact(np.concatenate([at.x, at.y], axis=-1)[index])
    return coordinates @ with_rounding(at.limits.split.basis.T) + with_rounding(at.limits.minimum.floats)


def loss_from_logits(limits: Limits, theta: Numbers) -> Numbers:
    """Return L(θ), computed by its definition from logits, (k,)."""
    problem = limits.problem
    possible = problem.alternatives
    log_times = np.where(possible, np.log(exact(np.maximum(problem.multiplicities, 1))), -np.inf)
    # The products in vec(e_v h_jᵀ) are rounded once.
    vectors: Any = exact(problem.vectors) if problem.factors is None else with_rounding(problem.vectors)
    levels = np.einsum("kd,jvd->kjv", theta, vectors)
    logits: Any = levels + log_times
    attained = np.sum(limits.targets * (levels + np.where(possible, log_times, 0.0)), axis=-1)
    return np.sum(
        with_rounding(to_floats(problem.weights)) * (np.logaddexp.reduce(logits, axis=-1) - attained), axis=-1
    )


def correlation_claims(at: LossParts) -> Iterator[Claim]:
    """Claim the two inequalities of part 5 of the statement."""
    down: Any = -np.vecdot(at.gradient_outside, at.limits.ray)
    yield at_least(CORRELATES, Form.EFFECTIVE, down, at.share_off)
    along: Any = -np.vecdot(at.gradient_outside, exact(at.y))
    yield at_least(NO_MORE, Form.EFFECTIVE, at.soft_margin * at.share_off, along)
