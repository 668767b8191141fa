"""The cross-entropy of next tokens approaches the entropy of the observed next tokens and never attains it.

Main result: Proposition 1 of arXiv 2402.18551, with the rate.

Reference: arXiv 2402.18551, Definitions 1 and 2, Proposition 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Float64

from generators.next_token.assumptions import COMPATIBLE, SEPARABLE, SOMETHING_APART
from generators.next_token.cases import compatible_cases
from generators.next_tokens import NextTokens
from reference_attention.exact import products, rational, to_floats
from reference_attention.floats import EPS
from reference_attention.next_token.split_loss import next_token_loss
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise, stated_claim
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.next_token.limits import LIMIT_PREMISES, Limits, certify_limits
from theorems.next_token.loss_parts import LossParts
from theorems.next_token.ntp_extended_supports import LOSS_ROUNDING, loss_from_logits, theta_of
from theorems.next_token.sublevel_bounds import probe_points
from theorems.rounding.attention_at import Numbers

ENTROPY = premise("infimum-is-the-entropy")
LOG_ODDS = premise("log-odds-are-attained")
ABOVE = stated_claim("cross-entropy-is-above-the-entropy")
APPROACHED = stated_claim("entropy-is-approached")
POINTS = 40
FARTHEST = 60.0
GAMMAS = np.arange(0.0, 41.0, 4.0)


@statement(
    "ntp-entropy",
    "Cross-entropy of next tokens approaches the entropy and never attains it",
    source="2402.18551, Proposition 1",
    claims=(*LIMIT_PREMISES, ENTROPY, LOG_ODDS, ABOVE, APPROACHED),
    assumptions=(COMPATIBLE, SEPARABLE, SOMETHING_APART),
    about=NextTokens,
    cases=compatible_cases,
    kernel=SVM_ONLY,
)
def ntp_entropy(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """**Proposition 1.** Let some W^p attain the log-odds of the observed next tokens.

    This means (e_z − e_z')ᵀW^p h_j = log(p_jz/p_jz') on S_j (4), where S_j are the tokens that follow context j. Let
    some W^d have (e_z − e_z')ᵀW^d h_j = 0 on S_j and (e_z − e_v)ᵀW^d h_j ≥ 1 for v ∉ S_j, and let some token never
    follow some context. Then CE(W) > H for every W, where H is the entropy of the p_j, weighted by π, and CE(W^p +
    γW^d) → H as γ → ∞.

    Here in the notation of ntp-extended-supports, for any alternatives: Ŝ = S, L_⋆ = H, P_FW^p = θ_⋆, and

        L(θ) ≥ H + Σπ_j log(1 + x_j) > H,   L(W^p + γW^d) − H ≤ e^{−γ} Σπ_j w⋆_jv e^{−g_jv·W^p}.

    **Proof.** (4) makes the softmax on S_j equal to p_j, so that L_fin(W^p) is the entropy, the least value of L_fin;
    and x_j > 0 wherever V_j ≠ S_j. The part of W^p in F is θ_⋆, its part in F^⊥ is arbitrary; W^d is in F^⊥ with
    g_jv·W^d ≥ 1; log(1 + x) ≤ x.
    """
    problem, rng = case.problem, case.rng()
    limits = yield from certify_limits(problem, under_test)
    entropy = entropy_of(limits)
    yield equal(ENTROPY, limits.loss_at_infinity, entropy)
    supports = problem.supports
    attained: Any = np.log(limits.targets[supports])
    # Where a context is followed by a single token, both sides are exactly 0.
    yield equal(LOG_ODDS, exact(limits.minimum.log_shares[supports]).widen(4 * EPS * spread(attained)), attained)
    x, y = probe_points(limits, rng, POINTS)
    at = LossParts(limits, x, y)
    near = np.flatnonzero(value_of(at.norm) <= FARTHEST)
    if len(near):
        theta = theta_of(at, near)
        loss = np.asarray(under_test[next_token_loss](problem, value_of(theta)))
        carried = 2 * loss_from_logits(limits, theta).error + 8 * EPS * np.abs(loss)
        least = entropy + np.sum(limits.weights * at.log_kept[near], axis=-1)
        yield at_least(ABOVE, Form.EXACT, exact(loss).widen(carried), least, why=LOSS_ROUNDING)
    for margins in separators(limits, rng):
        inside = rng.normal(size=y.shape[1]) * rng.choice([0.0, 1.0])
        yield approached_claim(limits, inside, margins)


def spread(x: Numbers) -> Float64[np.ndarray, "k"]:
    """Return an array of the shape of x, filled with the largest |x|."""
    return np.full(x.shape, float(np.abs(value_of(x)).max(initial=0.0)))


def entropy_of(limits: Limits) -> Numbers:
    """Return the entropy H = −Σπ_jΣ_v p_jv log p_jv of the next tokens, computed only from their counts."""
    problem = limits.problem
    p, possible = limits.targets, problem.supports
    logs: Any = np.log(np.where(possible, p, 1.0))
    return -np.sum(limits.weights * np.sum(p * logs, axis=-1))


def separators(limits: Limits, rng: np.random.Generator) -> Iterator[Float64[np.ndarray, "m K"]]:
    """Yield the margins, rounded once, of three separating W^d: θ_mm, the linear program's solution, and a mixture.

    Each W^d is divided by its least margin in rational arithmetic; in floats, a long W^d would have margins below 1.
    """
    rows = limits.problem.differences
    apart = [pair for pair in rows if limits.others[pair]]
    exactly = [rows[pair] for pair in apart]
    ray, other = products(exactly, limits.svm.point), products(exactly, limits.supports.separator)
    for share in (0.0, 1.0, float(rng.uniform(0.1, 0.9))):
        s = rational(share)
        mixed = [(1 - s) * x + s * y for x, y in zip(ray, other, strict=True)]
        least = min(mixed, default=fmpq(1))
        margins = np.zeros(limits.others.shape)
        for pair, margin in zip(apart, mixed, strict=True):
            margins[pair] = to_floats([margin / least])[0]
        yield margins


def approached_claim(limits: Limits, inside: Float64[np.ndarray, "s"], apart: Float64[np.ndarray, "m K"]) -> Claim:
    """Claim the bound of L(W^p + γW^d) − H for W^p = θ_⋆ + y, y ∈ F^⊥, with y = ``inside``.

    ``apart`` has the margins of W^d. The left-hand side is Σ π_j log(1 + Σ_v w⋆_jv e^{−g_jv·y − γ apart_jv}).
    """
    margins: Any = np.where(limits.others, limits.outside @ exact(inside), 0.0)
    logs = np.where(limits.others, limits.log_outer - margins, -np.inf)
    weighed: Any = np.log(limits.weights)[:, None] + logs
    scale = np.logaddexp.reduce(np.logaddexp.reduce(weighed, axis=-1), axis=-1)
    falling = logs - exact(GAMMAS)[:, None, None] * with_rounding(apart)
    excess = np.sum(limits.weights * np.logaddexp(0.0, np.logaddexp.reduce(falling, axis=-1)), axis=-1)
    # Both sides are compared in logarithms, because the bound may be too large for a float.
    return at_least(APPROACHED, Form.EFFECTIVE, scale - exact(GAMMAS), np.log(excess), points="γ")
