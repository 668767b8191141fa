"""For one input and any start, the direction of Adam without ε tends to the largest ℓ∞ margin of attention.

Main result: a lower bound of the margin at every step, for every 0 ≤ β1² < β2 < 1, with or without bias correction.

Reference: derived here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from generators.case import Case
from reference_attention.floats import EPS
from theorems.adaptive_methods.adam_bounds import ADAM_PREMISES, DIRECTION
from theorems.adaptive_methods.adam_from_a_margin import follow_attention
from theorems.adaptive_methods.adam_max_margin import adam_steps
from theorems.adaptive_methods.inexact_steps import STEP_CLAIMS
from theorems.bounded import exact
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import Geometry, certify_margin
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_one_input import ASSUMPTIONS, affordable_steps, one_input_cases, starts_against
from theorems.steepest_descent.steepest_run import RUN_IS_ASKED_FOR

STEPS = 100


@statement(
    "adam-one-input",
    "Adam without ε on attention, one input: the ℓ∞ margin from any start",
    source="own",
    claims=(NORM_MARGIN, RUN_IS_ASKED_FOR, *ADAM_PREMISES, DIRECTION, *STEP_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=one_input_cases,
    kernel=SATURATED,
    needs={"separable": "there is a largest margin, and it is positive, only if ATT-SVM is feasible"},
)
def adam_one_input(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let n = 1, Assumptions A, B hold and ATT-SVM be feasible; rows, γ, D, D', Φ are those of steepest-one-input.

    The norm is ‖·‖_∞. Let A_t, a, b, c, ρ, τ, σ and κ_t be as in adam-max-margin, but with e^{(D+D')ℓ_s + Λ} − 1 in
    place of e^{Dℓ_s} − 1 in the terms s ≥ 1 of τ and σ, and with 0 in the terms s = 0, where Λ is the range of log|ℓ'|
    between the two scores (0 for the correlation loss). From any p(0) let p(t+1) = p(t) − η_t A_t. Then at every t,
    with b_t = η_tκ_t − D'²ρ_t²η_t²/8 of either sign,

        Φ(p(t+1)) ≤ Φ(p(t)) − b_t,    m(p(t)) ≥ −Φ(p(0)) + Σ_{s<t} b_s,    ‖p(t)‖_∞ ≤ ‖p(0)‖_∞ + Σηρ.

    For the correlation loss, β1 = β2 and η_t = η_0/√t, the gap γ − m/‖p‖_∞ is O(log t/√t).

    **Derivation.** −∇L = Σ C_t g_t, C_t = |ℓ'|gap s_opt s_t (steepest-one-input), and the weights ω = C/ΣC are exactly
    those of −∇Φ. Per unit of length, in a direction h, log(s_opt s_t) changes by −g_t·h + 2Σ_u s_u g_u·h = (ḡ − g_t)·h
    + (1 − 2s_opt)ḡ·h, where ḡ is the mean of the rows under ω: by at most D' + D. With Z = ΣC in place of G the
    derivation of adam-max-margin gives ⟨∇L, A_t⟩ ≥ κ_tZ, so ⟨−∇Φ, −A_t⟩ ≥ κ_t, and Φ'' ≤ D'²ρ²/4 along −A_t.
    """
    problem, rng = case.problem, case.rng()
    geometry = yield from certify_margin(problem, math.inf, under_test)
    bounds = adam_steps(geometry, rng, min(STEPS, affordable_steps(problem)))
    bounds = replace(bounds, moves=geometry.reach + geometry.diameter, further=slope_range(geometry))
    log_c = exact(np.zeros(len(geometry.rows)))
    run = yield from follow_attention(geometry, bounds, under_test, starts_against(case, geometry, rng), log_c)
    yield from run.claims(run.run.bounds)


def slope_range(geometry: Geometry) -> Numbers:
    """Return Λ, the range of log|ℓ'| between the optimal and the other score."""
    loss, (low, high) = geometry.problem.loss, geometry.problem.score_range
    ends = np.array([loss.log_bound(low, high), loss.log_floor(low, high)])
    bounds: Any = approximate(ends, 8 * EPS * (1 + np.abs(ends)))
    return bounds[0] - bounds[1]
