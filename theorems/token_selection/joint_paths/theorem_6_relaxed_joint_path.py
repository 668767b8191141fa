"""Theorem 6: the joint regularization path when some inputs have label margin to spare."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.joint_cases import joint_cases, schedule_of
from reference_attention.paths.joint import relative_log_risk
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
    competitors,
    limit_claims,
)
from theorems.token_selection.joint_paths.joint_sublevel import JointSetup, Sublevel, joint_setup
from theorems.token_selection.joint_paths.scheduled_claims import SCHEDULED_CLAIMS, scheduled_claims

LEVELS = ((6.0, 0.5), (6.0, 1.0), (30.0, 1.0), (30.0, 2.0), (120.0, 0.5), (120.0, 2.0))
"""RΘ_relax and log r/(RΘ_relax) of the sublevel sets: r below, at and above e^{RΘ_relax}."""


def relaxed_cases() -> SearchStrategy[Case]:
    """Cases with one or two non-supports."""
    return joint_cases(non_supports=True)


@statement(
    "theorem-6",
    "head and prompt: inputs with label margin to spare need only be selected",
    source="Section 3.2, Theorem 6; Appendix C.2",
    claims=GIVEN_CLAIMS
    | SOLUTION_CLAIMS
    | GRADIENT_CLAIMS
    | COMPETITOR_CLAIMS
    | EFFECTIVE_CLAIMS
    | LIMIT_CLAIMS
    | SCHEDULED_CLAIMS,
    states=("limit-direction", "limit-head"),
    premises=(*GIVEN_CLAIMS, *SOLUTION_CLAIMS, *GRADIENT_CLAIMS, "path-is-lowest"),
    assumptions=("optimal-support-tokens", "separable", "radius-schedule"),
    cases=relaxed_cases,
    kernel=SATURATED,
)
def theorem_6(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """As Theorem 5, with Assumption C over the support set S of v_mm only; p_R selects α asymptotically. Then v_r/r →
    v̄_mm and p_R/R → p_relax/‖p_relax‖, p_relax = argmin ‖p‖ subject to (k_iα − k_it)·p ≥ 1 for i ∈ S and ≥ 0 for i ∉
    S.

    **A hypothesis is missing in the paper.** With r fixed, or r = o(R), the path goes to p_mm instead (Figure 3(b):
    cos = 0.98). Along r = cR it goes to p(c) of :mod:`reference_attention.paths.scheduled_direction`, which is p_relax
    if and only if c ≥ c* = max_{i∉S} (Θ_relax − ρ_i)^+/slack_i with slack_i = v̄_mm·z_iα − Γ and ρ_i = min_t (k_iα −
    k_it)·p̄_relax (c* = 1 in Figure 3(b)). So the schedule is part of the case: r ≥ c* R. Derivation in
    :mod:`.joint_limit`.

    **Effective**, on the sublevel set of (r v̄_mm, R p̄_c), p_c = p_relax + ε(p_mm − p_relax): q_S, margins over S and
    the head as in Theorem 5; at i ∉ S with d_i = min_t v̄_mm·(z_iα − z_it) > 0, q_i ≤ Q_i and (k_iα − k_it)·p ≥
    log(1/Q_i − 1), an O(1) that divided by R vanishes; and from both the cosine with p_relax (:mod:`.joint_sublevel`,
    items 1–7). Where Q_i ≥ 1, points in the quadrant of Lemma 12 still obey the bound.

    **Selection may fail and the conclusion still hold**: where ρ_i = 0 with a positive dual, minimisers keep
    q_i near slack_i/d_i > 0, so s_iα does not tend to 1, and yet p_R/R → p̄_relax.

    **Limit.** Along r = cR with c from c* to 8c* to RΘ = 10⁸, where 1 − cos(p, p_relax) is bounded by 10⁻⁶.
    """
    setup = joint_setup(case, under_test)
    yield from given_claims(case, setup, under_test)
    given = schedule_of(case)
    norm = setup.target.norm
    if given is None:
        radii = [(share * units, units * norm) for units, share in LEVELS]
    else:
        radii = list(zip(given[0].tolist(), given[1].tolist(), strict=True))
    levels = [sublevel(setup, under_test, log_r, R) for log_r, R in radii]
    rng = case.rng()
    yield from solution_claims(setup, under_test)
    yield from competitor_claims(levels)
    yield from effective_claims(levels, rng)
    yield from gradient_claims(setup, under_test, rng)
    yield from scheduled_claims(setup, under_test)
    starts = rng.normal(size=(STARTS, setup.target.p.size))
    ratio = linear_ratio(setup, under_test) * float(rng.choice([1.0, 2.0, 8.0]))
    yield from limit_claims(setup, under_test, lambda R: math.log(ratio * R), LARGEST_UNITS * norm, starts)


def linear_ratio(setup: JointSetup, under_test: Implementation) -> float:
    """The smallest r/R that suffices, and enough for rΓ to be a quarter of RΘ_relax."""
    return max(under_test.critical_ratio(setup.joint, setup.target), setup.target.margin / (4 * setup.joint.svm.margin))


def sublevel(setup: JointSetup, under_test: Implementation, log_r: float, R: float) -> Sublevel:
    """The sublevel set of the competitor of least risk."""
    joint, zero = setup.joint, np.zeros(setup.joint.tokens.shape[2])
    prompts = competitors(setup, R)
    risks = [float(relative_log_risk(joint, log_r, zero, joint.log_weights(p))) for p in prompts]
    return Sublevel(setup, under_test, log_r, R, prompts[int(np.argmin(risks))])
