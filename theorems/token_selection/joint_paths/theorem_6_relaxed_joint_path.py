"""Theorem 6: the joint regularization path when v_mm separates some inputs with more than the label margin.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3.2, Theorem 6, Appendix C.2;
:mod:`.joint_constants`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.joint_cases import radii_of, relaxed_cases
from reference_attention.floats import EPS
from reference_attention.paths.joint_path import linear_schedule
from reference_attention.paths.scheduled_direction import critical_ratio, scheduled_direction
from theorems.core.claim import Claim, Form, at_least, section
from theorems.core.claim_name import premises, sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.token_selection.joint_paths.joint_constants import (
    COMPETITOR_CLAIMS,
    EFFECTIVE_CLAIMS,
    HEAD_DIRECTION,
    JOINT_LIMIT,
    LIMIT_CLAIMS,
    LIMIT_DIRECTION,
    LIMIT_HEAD,
    LIMIT_MARGINS,
    LIMIT_REACHED,
    PROMPT_DIRECTION,
    PROMPT_MARGIN,
    QUADRANT,
    LimitBounds,
    Pairs,
    Sublevel,
    competitor_claims,
)
from theorems.token_selection.joint_paths.joint_gradients import JOINT_GRADIENTS, joint_gradients
from theorems.token_selection.joint_paths.joint_minimiser import LARGEST_UNITS, STARTS, JointMinimiser
from theorems.token_selection.joint_paths.joint_premises import JOINT_DATA, JOINT_SOLUTIONS, joint_data, joint_solutions
from theorems.token_selection.joint_paths.joint_sets import at_pairs
from theorems.token_selection.joint_paths.joint_setup import NON_OPTIMALITY, JointSetup, joint_setup

SCHEDULED = tolerance(
    "scheduled-direction",
    "2⁻²⁶ max|k_iα − k_it|",
    "non-negative least squares decides feasibility by a residual whose square has the rounding error 2⁻⁵²",
)

BINDING = "some non-support delays p_relax: c* > 0 by more than the rounding of margins"
IS_BEST = sharper("scheduled-direction-is-best")
IN_QUADRANT = sharper("scheduled-direction-in-quadrant")
SUFFICES = sharper("critical-ratio-suffices", when=BINDING)
IS_NEEDED = sharper("critical-ratio-is-needed", when=BINDING)

LEVELS = ((6.0, 0.5), (6.0, 1.0), (30.0, 1.0), (30.0, 2.0), (120.0, 0.5), (120.0, 2.0))
"""The pairs (RΘ, log r/(RΘ)) for the radii r, R of sublevel sets: r is below, at or above e^{RΘ}; Θ = 1/‖p_relax‖."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)
"""The ratios c/c* at which p(c), the limit of the path along r = cR, is evaluated; c* is the critical ratio."""
RATIOS = (1.0, 2.0, 8.0)
"""The ratios r/(c* R) along which the limit is claimed, c* the critical ratio."""


@statement(
    "theorem-6",
    "head and prompt: inputs with label margin to spare need only be selected",
    source="Section 3.2, Theorem 6; Appendix C.2",
    claims=(
        *JOINT_DATA,
        *JOINT_SOLUTIONS,
        *JOINT_GRADIENTS,
        *COMPETITOR_CLAIMS,
        *EFFECTIVE_CLAIMS,
        *LIMIT_CLAIMS,
        IS_BEST,
        IN_QUADRANT,
        SUFFICES,
        IS_NEEDED,
    ),
    assumptions=("optimal-support-tokens", "separable", "radius-schedule"),
    cases=relaxed_cases,
    kernel=SATURATED,
)
def theorem_6(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Theorem 5's hypotheses hold, Assumption C only over the supports S of v_mm; let p_R select α in the limit.

    Then v_r/r → v̄_mm and p_R/R → p_relax/‖p_relax‖, p_relax = argmin ‖p‖ subject to (k_iα − k_it)·p ≥ 1 for i ∈ S and
    ≥ 0 for i ∉ S.

    **A hypothesis is missing in the paper.** With r fixed, or r = o(R), the path goes to p_mm instead (Figure 3(b):
    cos = 0.98). Along r = cR it goes to p(c) of :mod:`reference_attention.paths.scheduled_direction`, which is p_relax
    if and only if c ≥ c* = max_{i∉S} (Θ_relax − ρ_i)^+/slack_i with slack_i = v̄_mm·z_iα − Γ and ρ_i = min_t (k_iα −
    k_it)·p̄_relax (c* = 1 in Figure 3(b)). So the schedule is part of the case: r ≥ c* R. Derivation in
    :mod:`.joint_constants`.

    **Effective**, at pairs (v, p) with ‖v‖ ≤ r, ‖p‖ ≤ R and at most the risk of (r v̄_mm, R p̄_c), p_c = p_relax + ε(p_mm
    − p_relax), with q_i = 1 − s_iα and z_it = Y_i x_it: the bounds of q_i and of margins over S and of the head are
    those of Theorem 5; at i ∉ S with d_i = min_t v̄_mm·(z_iα − z_it) > 0, q_i ≤ Q_i and (k_iα − k_it)·p ≥ log(1/Q_i −
    1), an O(1) that vanishes when divided by R; and from both bounds the cosine with p_relax (:mod:`.joint_constants`,
    items 1–7). Where Q_i ≥ 1, points in the quadrant of Lemma 12 still obey the bound.

    **The conclusion may hold although selection fails**: where ρ_i = 0 with a positive dual, minimisers keep
    q_i near slack_i/d_i > 0, so s_iα does not tend to 1, and yet p_R/R → p̄_relax.

    **Limit.** Along r = cR with c from c* to 8c*, up to RΘ = 10⁸, where 1 − cos(p, p_relax) is bounded by 10⁻⁶.
    """
    setup = joint_setup(case, under_test)
    yield from premises(joint_data(case, setup, under_test), joint_solutions(setup, under_test))
    p_relax, rng = setup.target, case.rng()
    radii = radii_of(case) or [(share * units, units * p_relax.norm) for units, share in LEVELS]
    levels = [Sublevel.of(setup, under_test, log_r, R) for log_r, R in radii]
    yield from competitor_claims(levels)
    yield from in_sublevel_sets([level.pairs(rng) for level in levels])
    yield from premises(joint_gradients(setup, under_test, rng))
    yield from schedule_claims(setup, under_test)
    starts = rng.normal(size=(STARTS, p_relax.p.size))
    ratio, R = linear_ratio(setup, under_test) * float(rng.choice(RATIOS)), LARGEST_UNITS * p_relax.norm
    at = JointMinimiser.of(setup, under_test, linear_schedule(ratio), R, starts, LIMIT_DIRECTION)
    yield from minimiser_claims(at)


def in_sublevel_sets(sets: Sequence[Pairs]) -> Iterator[Claim]:
    """Yield the effective claims at pairs of sublevel sets; the comments use the symbols of :mod:`.joint_constants`."""
    S = sets[0].level.setup.joint.svm.support

    # The weights outside α at the supports S: q_S = max_{i∈S} (1 − s_iα) ≤ B.
    yield from at_pairs(NON_OPTIMALITY, [(x.level.bound, np.max(x.q[:, S], axis=1)) for x in sets])

    # The margins: (k_iα − k_it)·p ≥ log(1/B − 1) over S, and ≥ log(1/Q_i − 1) at i ∉ S.
    margins = [(x.margins[:, S], x.level.floors[S]) for x in sets if x.level.bound < 1]
    yield from at_pairs(PROMPT_MARGIN, margins)
    others = [(x.margins[:, x.level.spare], x.level.floors[x.level.spare]) for x in sets if x.level.spare.any()]
    yield from at_pairs(QUADRANT, others)

    # The prompt's direction, with the duals μ of p_relax and the margins m_i of p: ⟨p, p̄_relax⟩/R ≥ (Σ_{i∈S} μ_it
    # log(1/B − 1) + Σ_{i∉S} μ_it max(log(1/Q_i − 1), min(m_i, 0)))/(R‖p_relax‖).
    useful = [(x, x.least_cosine > 0) for x in sets]
    cosines = [(x.cosine[good], x.least_cosine[good]) for x, good in useful if good.any()]
    yield from at_pairs(PROMPT_DIRECTION, cosines)

    # The head's direction: 1 − cos(v, v_mm) ≤ (F/r + BΔ)/Γ.
    yield from at_pairs(HEAD_DIRECTION, [(x.level.head_loss, x.head_off) for x in sets if x.level.head_loss <= 1])


@section
def minimiser_claims(at: JointMinimiser) -> Iterator[Claim]:
    """Yield the limit claims at a minimiser of the risk; the comments use the symbols of :mod:`.joint_constants`."""
    yield from premises(at)
    bounds = LimitBounds(at)

    # The margins, (k_iα − k_it)·p ≥ log(1/Q_i − 1) for bounds Q_i of 1 − s_iα, hence with the duals μ of p_relax the
    # prompt's direction, ⟨p, p̄_relax⟩/R ≥ Σ_it μ_it log(1/Q_i − 1)/(R‖p_relax‖) ≥ 1 − 10⁻⁶.
    yield at_least(LIMIT_MARGINS, Form.LIMIT, at.margins, bounds.floors, why=JOINT_LIMIT, points="input")
    yield at_least(LIMIT_DIRECTION, Form.LIMIT, at.cosine, bounds.cosine, why=JOINT_LIMIT, points="minimiser")
    if bounds.radius_suffices:
        least = 1 - bounds.visible
        yield at_least(LIMIT_REACHED, Form.LIMIT, bounds.cosine, least, why=JOINT_LIMIT, points="minimiser")

    # The head's direction: 1 − cos(v, v_mm) ≤ F (1 + Δ/ν)/(rΓ).
    if bounds.head <= 1:
        yield at_least(LIMIT_HEAD, Form.LIMIT, bounds.head, bounds.head_off, why=JOINT_LIMIT, points="minimiser")


def schedule_claims(setup: JointSetup, under_test: Implementation) -> Iterator[Claim]:
    """Claim that p(c), the limit along r = cR, is feasible and maximises τ(p, c), as p_relax does only for c ≥ c*.

    For unit vectors p with margins m_i = min_t (k_iα − k_it)·p ≥ 0, τ(p, c) = min( min_{i∈S} m_i, min_{i∉S} m_i + c
    slack_i ), with the supports S of v_mm and the excess slack_i of its outputs over the label margin
    (:mod:`reference_attention.paths.scheduled_direction`). p(c) is compared with p_mm, p_relax and directions between
    them.
    """
    joint, critical = setup.joint, under_test[critical_ratio](setup.joint, setup.target)
    ratios = [share * critical for share in SHARES]
    p = [under_test[scheduled_direction](joint, c)[None] for c in ratios]
    others = between(setup)
    allowed: dict[str, Any] = {"rounding": 2.0**-26 * joint.longest_row, "why": SCHEDULED, "points": "ratio"}

    # p(c) maximises τ, τ(p(c), c) ≥ τ(p, c), and its margins are not negative, min_i m_i(p(c)) ≥ 0.
    scheduled = np.array([tau(setup, prompt, c)[0] for prompt, c in zip(p, ratios, strict=True)])
    best = np.array([tau(setup, others, c).max() for c in ratios])
    yield at_least(IS_BEST, Form.EFFECTIVE, scheduled, best, **allowed)
    lowest = np.array([margins(setup, prompt).min() for prompt in p])
    yield at_least(IN_QUADRANT, Form.EFFECTIVE, lowest, np.zeros(len(p)), **allowed)

    # τ(p̄_relax, c*) ≥ Θ_relax ≥ τ(p̄_relax, c*/2): at c*, no input makes τ smaller than the margin Θ_relax; below c*,
    # some input that is no support does. Where half of Θ_relax − ρ_i (ρ_i: the margin at such an input) is no more than
    # the rounding error of a margin, a sum of k rounded products of rounded factors, floats cannot decide on which side
    # of c* a ratio lies.
    rounding = 2 * (p[0].size + 4) * EPS * joint.longest_row
    slack = joint.svm.slack[~joint.svm.support]
    if critical * slack.min(initial=math.inf) / 2 > 4 * rounding:
        relaxed, theta = setup.target.direction[None], np.array([setup.target.margin])
        at, below = (tau(setup, relaxed, share * critical) for share in (1.0, 0.5))
        yield at_least(SUFFICES, Form.EFFECTIVE, at, theta, **allowed)
        yield at_least(IS_NEEDED, Form.EFFECTIVE, theta, below + rounding, **{**allowed, "rounding": 0.0})


def between(setup: JointSetup) -> Float64[np.ndarray, "m k"]:
    """Return the directions of nine equally spaced points on the segment from p_relax to p_mm."""
    start, towards = setup.target.p, setup.separator.p - setup.target.p
    prompts = np.array([start + share * towards for share in np.linspace(0.0, 1.0, 9)])
    return np.asarray(prompts / np.linalg.norm(prompts, axis=1, keepdims=True))


def margins(setup: JointSetup, p: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m n"]:
    """Return the margins m_i = min_t (k_iα − k_it)·p at each input, (m, n), of unit vectors p, (m, k)."""
    rows = np.einsum("ntk,mk->mnt", setup.joint.rows, p)
    return np.asarray(np.min(np.where(setup.joint.others, rows, np.inf), axis=-1))


def tau(setup: JointSetup, p: Float64[np.ndarray, "m k"], c: float) -> Float64[np.ndarray, "m"]:
    """Return τ(p, c), which the limit along r = cR maximises (:func:`schedule_claims`), for unit vectors p."""
    return np.asarray(np.min(margins(setup, p) + c * setup.joint.svm.slack, axis=1))


def linear_ratio(setup: JointSetup, under_test: Implementation) -> float:
    """Return the smallest ratio r/R ≥ c* with rΓ ≥ RΘ_relax/4, Γ the label margin and Θ_relax = 1/‖p_relax‖."""
    return max(
        under_test[critical_ratio](setup.joint, setup.target), setup.target.margin / (4 * setup.joint.svm.margin)
    )
