"""Theorem 5: the joint regularization path of head and prompt when every attention feature is a support vector."""

from __future__ import annotations

import math
from collections.abc import Iterator

from generators.case import Case
from generators.joint_cases import joint_cases, schedule_of
from reference_attention.paths.joint_path import Schedule
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import SATURATED
from theorems.core.statement import statement
from theorems.token_selection.joint_paths.given_claims import GIVEN_CLAIMS, given_claims
from theorems.token_selection.joint_paths.joint_claims import (
    COMPETITOR_CLAIMS,
    EFFECTIVE_CLAIMS,
    SOLUTION_CLAIMS,
    competitor_claims,
    effective_claims,
    solution_claims,
)
from theorems.token_selection.joint_paths.joint_gradients import GRADIENT_CLAIMS, gradient_claims
from theorems.token_selection.joint_paths.joint_limit import (
    LARGEST_UNITS,
    LIMIT_CLAIMS,
    STARTS,
    limit_claims,
    sharp_claim,
)
from theorems.token_selection.joint_paths.joint_sublevel import Sublevel, joint_setup

LEVELS = ((6.0, 0.5), (6.0, 1.0), (30.0, 1.0), (30.0, 2.0), (120.0, 0.5), (120.0, 2.0))
"""RΘ and log r/(RΘ) of the sublevel sets: r below, at and above e^{RΘ}."""


@statement(
    "theorem-5",
    "head and prompt: the joint regularization path goes to v_mm and p_mm",
    source="Section 3.1, Theorem 5; Appendix C.1",
    claims=GIVEN_CLAIMS
    | SOLUTION_CLAIMS
    | GRADIENT_CLAIMS
    | COMPETITOR_CLAIMS
    | EFFECTIVE_CLAIMS
    | LIMIT_CLAIMS
    | {"sharp-offset": "all inputs are supports, neighbours independent with positive duals, the radius within 2^24"},
    states=("limit-direction", "limit-head"),
    premises=(*GIVEN_CLAIMS, *SOLUTION_CLAIMS, *GRADIENT_CLAIMS, "path-is-lowest"),
    assumptions=("optimal-tokens", "separable"),
    cases=joint_cases,
    kernel=SATURATED,
)
def theorem_5(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Logistic loss, Assumption C for α with ν, p_mm(α) exists. (v_r, p_R) minimise L over ‖v‖ ≤ r, ‖p‖ ≤ R; then
    v_r/r → v̄_mm and p_R/R → p̄_mm as r, R → ∞. (The loss of the case is not used, nor the head of its dataset.)

    **Effective**, for every (v, p) with ‖v‖ ≤ r, ‖p‖ ≤ R and L(v, p) ≤ L(r v̄_mm, R p̄_mm) =: L_c, with
    F = log(e^{n L_c} − 1) + rΓ ≤ log n + r D (T−1) e^{−RΘ} + o(1), D = max v̄_mm·(z_iα − z_it), Δ = max ‖x_iα − x_it‖:

    - q_max = max_i (1 − s_iα) ≤ B := F/(rν),
    - every margin (k_iα − k_it)·p ≥ log(1/B − 1) if B < 1, of either sign,
    - cos(p, p_mm) ≥ log(1/B − 1)/(RΘ) if that is positive,
    - 1 − cos(v, v_mm) ≤ (F/r + BΔ)/Γ if that is at most 1.

    Derivation: :mod:`.joint_sublevel`. It sharpens log(2n) to log n + o(1), 2M to D and Δ, and needs no sign of the
    margin. With r ≥ e^{RΘ}, B = O(e^{−RΘ}) and the margins are Θ − O(1)/R. Losses are compared as log L + rΓ.

    **Limit.** Minimisers need no schedule between r and R: followed along r = R, r = e^{RΘ/2} and r = e^{RΘ}/D to
    RΘ = 10⁸, where 1 − cos(p, p_mm) is bounded by 10⁻⁶ (:mod:`.joint_limit`). At R p̄_mm an output loses up to
    r D e^{−RΘ}: divided by D the last schedule leaves that O(1), in whatever unit tokens are.

    **Sharp.** Along r = e^{RΘ/2}, R(p_R/R − p̄_mm) → G⁺ log(π_i δ_it/μ_it) across p̄_mm, for independent neighbours
    with duals μ > 0.
    """
    setup = joint_setup(case, under_test)
    yield from given_claims(case, setup, under_test)
    theta, norm, direction = setup.separator.margin, setup.separator.norm, setup.separator.direction
    given = schedule_of(case)
    if given is None:
        radii = [(share * units, units * norm) for units, share in LEVELS]
    else:
        radii = list(zip(given[0].tolist(), given[1].tolist(), strict=True))
    levels = [Sublevel(setup, under_test, log_r, R, R * direction) for log_r, R in radii]
    rng = case.rng()
    yield from solution_claims(setup, under_test)
    yield from competitor_claims(levels)
    yield from effective_claims(levels, rng)
    yield from gradient_claims(setup, under_test, rng)
    starts = rng.normal(size=(STARTS, direction.size))
    share, units = [(0.0, LARGEST_UNITS), (0.5, LARGEST_UNITS), (1.0, LARGEST_UNITS / 4)][int(rng.integers(3))]
    unit = float(setup.largest_drops.value.max()) if share == 1.0 else 1.0
    yield from limit_claims(setup, under_test, slower(share * theta, unit), units * norm, starts)
    yield from sharp_claim(setup, under_test, starts)


def slower(rate: float, unit: float = 1.0) -> Schedule:
    """r = max(R, e^{rate·R}/unit)."""
    return lambda R: max(math.log(R), rate * R - math.log(unit))
