"""Gradient descent on next tokens: the loss falls to its infimum, W turns to W^mm, P_FW converges to W⋆.

Main result: Theorem 2 of arXiv 2402.18551 from any start, with rates, and without its two conditions on the data.

Reference: arXiv 2402.18551, Lemma 2, Theorem 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from generators.next_token.assumptions import SHORT_STEPS, SOMETHING_APART
from generators.next_token.cases import cases_with_something_apart
from generators.next_tokens import NextTokens
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.next_token.descent_run import RUN_PREMISES, DescentRun, chosen_step, follow, starts
from theorems.next_token.limits import LIMIT_PREMISES, certify_limits
from theorems.next_token.sublevel_bounds import finite_bound, least_margin_bound
from theorems.rounding.attention_at import Numbers

FALLS = stated_claim("loss-falls-to-its-infimum")
SETTLES = stated_claim("part-in-f-comes-to-its-limit", when="where F ≠ 0")
SEPARATES = stated_claim("margins-grow")
TURNS = stated_claim("iterate-turns-to-theta-mm")
STAYS = sharper("iterate-stays-near-the-ray")
RAYS = np.concatenate([[0.0], np.exp(np.linspace(-1.0, 3.0, 12))])
"""The numbers r at which the statement's bound (G1) is evaluated; all bounds hold, and the smallest is claimed."""


@statement(
    "ntp-descent",
    "Gradient descent on next tokens, from any start",
    source="2402.18551, Theorem 2, Lemmas 2, 4 and 5",
    claims=(*LIMIT_PREMISES, *RUN_PREMISES, FALLS, SETTLES, SEPARATES, STAYS, TURNS),
    assumptions=(SOMETHING_APART, SHORT_STEPS),
    about=NextTokens,
    cases=cases_with_something_apart,
    kernel=SVM_ONLY,
)
def ntp_descent(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """**Theorem 2.** Let the data be NTP-compatible and NTP-separable.

    Then gradient descent has CE(W_k) → H, ‖W_k‖ → ∞, cos(W_k, W^mm) → 1 and P_F(W_k) → W⋆.

    Here the theorem is proved for any data, in the notation of ntp-extended-supports, with L_⋆ in place of H, Ŝ of S
    and θ_⋆ of W⋆. Let some alternative be off Ŝ, η ≤ 1/β with ∇²L ⪯ β, ϑ_r = θ_⋆ + rθ_mm, E(r) = L(ϑ_r) − L_⋆ ≤
    ωe^{−r}. From any θ_0, at every k ≥ 1,

        (G1) L(θ_k) − L_⋆ ≤ ε_k = min_r [E(r) + ‖θ_0 − ϑ_r‖²/(2ηk)], which is O(log²k/k);
        (G2) (F) and (M) of ntp-path with E = ε_k: P_F θ_k → θ_⋆, and margins grow like log k;
        (G3) ‖θ_k − ϑ_r‖² ≤ ‖θ_0 − ϑ_r‖² + 2ηkE(r) for every r;
        (G4) ⟨θ_k, θ̄_mm⟩ ≥ ⟨θ_0, θ̄_mm⟩ + Σ_s (‖θ_{⊥,s+1}‖ − ‖θ_{⊥,s}‖ − ‖Δ_{⊥,s}‖²/(2‖θ_{⊥,s}‖))/(1 + K_s/ρ_s),

    where ρ = ‖θ_⊥‖/‖θ_mm‖, Δ are the steps, and K is as in ntp-extended-supports. As K_s stays bounded by (F), Σ‖Δ‖² ≤
    2η(L(θ_0) − L_⋆) and ρ → ∞: 1 − cos(θ_⊥, θ_mm) = O(log ρ/ρ). Together these are Theorem 2, from any start and with
    rates.

    **G1.** For any convex loss and η ≤ 1/β, L(θ_k) − L(ϑ) ≤ ‖θ_0 − ϑ‖²/(2ηk) for every ϑ. **G3.** ‖θ⁺ − ϑ‖² − ‖θ − ϑ‖²
    = −2η⟨∇L, θ − ϑ⟩ + η²‖∇L‖² ≤ 2η(L(ϑ) − L(θ⁺)), as η‖∇L‖²/2 ≤ L(θ) − L(θ⁺). **G4.** Let y = θ_⊥, ȳ = y/‖y‖, and λ be
    the duals of θ_mm. ‖y + Δ‖ ≤ ‖y‖ + ⟨ȳ, Δ⟩ + ‖Δ‖²/(2‖y‖), and ⟨ȳ, Δ⟩ ≤ (1 + K/ρ)⟨θ̄_mm, Δ⟩ by part 5 of
    ntp-extended-supports, as m ≤ ρ: Σλm ≤ Σλg·y = ⟨θ_mm, y⟩, where Σλ = ‖θ_mm‖².
    """
    rng = case.rng()
    limits = yield from certify_limits(case.problem, under_test)
    x, y = starts(limits, case.start, rng)
    run = yield from follow(limits, under_test, x, y, chosen_step(case.step, limits, rng))
    bound = excess_bound(run)
    after: Any = run.at.excess[1:] - run.at.gradient_norm[1:] * run.drift
    yield at_least(FALLS, Form.EFFECTIVE, bound, after, points="iterate")
    # The bound holds for the exact run; by convexity the loss of the computed run exceeds that of the exact run by at
    # most ‖∇L‖ times the distance.
    bound = bound + run.at.gradient_norm[1:] * run.drift
    if limits.split.dimension:
        yield at_least(SETTLES, Form.EFFECTIVE, finite_bound(limits, bound), limits.span * run.at.inside_norm[1:])
    least = np.min(run.at.margins[1:], axis=(-2, -1))
    yield at_least(SEPARATES, Form.EFFECTIVE, least, least_margin_bound(limits, bound), points="iterate")
    yield stays_claim(run)
    yield turns_claim(run)


def excess_bound(run: DescentRun) -> Numbers:
    """Return ε_k, the smallest of the statement's bounds (G1) at the r in :data:`RAYS` and at r = log k, (k, b)."""
    k, limits = run.count, run.limits
    at_rays = limits.excess_on_ray(RAYS)[:, None, None] + run.start_to_ray(RAYS)[:, None] / (2 * exact(run.step) * k)
    radius = np.log(k[:, 0])
    at_log = limits.excess_on_ray(radius)[:, None] + run.start_to_ray(radius) / (2 * exact(run.step) * k)
    return np.minimum(np.min(at_rays, axis=0), at_log)


def stays_claim(run: DescentRun) -> Claim:
    """Claim (G3) of the statement for each r in :data:`RAYS`, with rounding added to the bound of ‖θ_k − ϑ_r‖."""
    away: Any = exact(run.at.y[1:])[None] - exact(RAYS)[:, None, None, None] * run.limits.ray
    far = np.linalg.norm(
        np.concatenate([np.broadcast_to(run.at.x[1:], (*away.shape[:-1], run.at.x.shape[-1])), away], axis=-1), axis=-1
    )
    grown = 2 * exact(run.step) * run.count * run.limits.excess_on_ray(RAYS)[:, None, None]
    bound = np.sqrt(run.start_to_ray(RAYS)[:, None] + grown)
    return at_least(STAYS, Form.EFFECTIVE, bound + run.drift, far, points="iterate and r")


def turns_claim(run: DescentRun) -> Claim:
    """Claim (G4) of the statement, with the errors of the steps subtracted from the lower bound of ⟨θ_k, θ̄_mm⟩."""
    size, along = run.at.outside_norm, run.at.along
    moved: Any = np.diff(exact(run.at.y), axis=0)
    length = np.linalg.norm(moved, axis=-1)
    # At θ_⊥ = 0, (G4) only claims that the step does not decrease ⟨θ, θ_mm⟩.
    nonzero = value_of(size[:-1]) > 0
    long: Any = np.where(nonzero, size[:-1], 1.0)
    ratio: Any = long / run.limits.ray_norm
    least = np.min(run.at.margins[:-1], axis=(-2, -1))
    more = np.maximum(run.at.soft_margin[:-1] - least, 0.0)
    gained: Any = (np.diff(size, axis=0) - length**2 / (2 * long)) / (1 + more / ratio)
    rounding = exact(run.step_error) * (2 + (length + run.step_error) / long)
    gained = np.where(nonzero, gained, 0.0) - np.where(nonzero, rounding, run.step_error)
    advance: Any = along[1:] - along[:1]
    return at_least(TURNS, Form.EFFECTIVE, advance, np.cumsum(gained, axis=0), points="iterate")
