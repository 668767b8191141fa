"""Lemma 12: a prompt p that selects α lies in the quadrant of α, the set with (k_iα − k_it)·p ≥ 0 for all i and t."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from generators.case import Case
from generators.joint_cases import relaxed_cases
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.points import probe_points
from theorems.core.statement import statement
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.weights_under_test import weights_of
from theorems.token_selection.joint_paths.joint_constants import Sublevel
from theorems.token_selection.joint_paths.joint_premises import JOINT_DATA, joint_data
from theorems.token_selection.joint_paths.joint_setup import joint_setup

ODDS = stated_claim("odds")
ODDS_REVERSED = sharper("odds-reversed")
QUADRANT_FROM_R0 = sharper("quadrant-from-r0")

LARGEST = 600.0
"""The largest |logit| at which the lemma is checked; up to this size the weights under test lose no digits."""


@statement(
    "lemma-12",
    "a prompt that selects α lies in the quadrant of α",
    source="Appendix C.2, Lemma 12",
    claims=(*JOINT_DATA, ODDS, ODDS_REVERSED, QUADRANT_FROM_R0),
    assumptions=("optimal-support-tokens", "separable"),
    cases=relaxed_cases,
    kernel=SATURATED,
)
def lemma_12(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If s_iα(p_R) → 1 for all i, then from some R₀ on min_{i,t} (k_iα − k_it)·p_R ≥ 0.

    **Effective**, for every p and i, with m_i = min_{t≠α} (k_iα − k_it)·p and q_i = 1 − s_iα:

        log(s_iα/q_i) ≤ m_i ≤ log(s_iα/q_i) + log(T − 1).

    (q_i/s_iα = Σ_{t≠α} e^{−(k_iα−k_it)·p} lies between its largest term and T − 1 times its largest term.) So p lies in
    the quadrant if s_iα ≥ 1/2 for all i, without any limit; for T = 2 the converse holds, too. R₀ is then explicit: any
    R from which on the bounds of Theorem 6 on the sublevel set are at most 1/2.
    """
    setup = joint_setup(case, under_test, ODDS)
    yield from premises(joint_data(case, setup, under_test))
    rng, joint = case.rng(), setup.joint
    level = Sublevel.of(setup, under_test, 30.0, 30.0 * setup.target.norm)
    points = probe_points(rng, case.problem, setup.target.p)
    largest = np.max(np.abs(np.sum(joint.rows * points[:, None, None, :], axis=-1)), axis=(1, 2))
    points = points[largest < LARGEST]
    at = AttentionAt(case.problem, points, under_test.textbook_eps)
    weights, margins = weights_of(at, under_test, ODDS), setup.margins(points)

    # The lemma's bounds of the margin m_i by the odds of α: log(s_iα/q_i) ≤ m_i ≤ log(s_iα/q_i) + log(T − 1), q_i = 1 −
    # s_iα.
    odds = np.sum(np.where(joint.others, 0.0, weights), axis=-1) / np.sum(np.where(joint.others, weights, 0.0), axis=-1)
    most = np.log(odds) + np.log(exact(case.problem.T - 1))
    yield at_least(ODDS, Form.EFFECTIVE, margins, np.log(odds), points="point and input")
    yield at_least(ODDS_REVERSED, Form.EFFECTIVE, most, margins, points="point and input")

    # The margin m_i is at least 0 wherever the bound on q_i = 1 − s_iα is at most 1/2.
    from_r0 = level.other_bounds <= 0.5
    inside = level.search_points(rng)
    if from_r0.any():
        low = setup.margins(inside.p)[:, from_r0]
        yield at_least(QUADRANT_FROM_R0, Form.EFFECTIVE, low, 0.0, points="pair (v, p) and input")
