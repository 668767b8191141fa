"""Lemma 12: selecting α puts the prompt into its quadrant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.paths.joint import Joint
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import SATURATED
from theorems.core.points import probe_points
from theorems.core.statement import statement
from theorems.core.survival import POINTS_ONLY
from theorems.token_selection.joint_paths.joint_sublevel import JOINT_SUBLEVEL, Sublevel, joint_setup
from theorems.token_selection.joint_paths.theorem_6_relaxed_joint_path import relaxed_cases, sublevel

LARGEST = 600.0
"""Points with a smaller |logit| than this: weights of the implementation under test keep their digits."""


@statement(
    "lemma-12",
    "a prompt that selects α lies in the quadrant of α",
    source="Appendix C.2, Lemma 12",
    assumptions=("optimal-support-tokens", "separable"),
    cases=relaxed_cases,
    kernel=SATURATED,
    survives={
        "epsilon-in-denominator": "odds are ratios of weights, in which the denominator cancels",
        "svm": POINTS_ONLY,
        "labels": POINTS_ONLY,
    },
)
def lemma_12(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If s_iα(p_R) → 1 for all i, then from some R₀ on min_{i,t} (k_iα − k_it)·p_R ≥ 0.

    **Effective**, for every p and i, with m_i = min_{t≠α} (k_iα − k_it)·p and q_i = 1 − s_iα:

        log(s_iα/q_i) ≤ m_i ≤ log(s_iα/q_i) + log(T − 1).

    (q_i/s_iα = Σ_{t≠α} e^{−(k_iα−k_it)·p} lies between its largest term and T − 1 times that.) So s_iα ≥ 1/2 is enough
    for the quadrant, no limit is needed, and for T = 2 it is equivalent. R₀ is then explicit: every R at which the
    bounds of Theorem 6 on the sublevel set are at most 1/2.
    """
    setup = joint_setup(case, under_test, "odds")
    rng = case.rng()
    joint, T = setup.joint, setup.joint.keys.shape[1]
    level = sublevel(setup, under_test, 30.0, 30.0 * setup.target.norm)
    points = probe_points(rng, case.problem, setup.target.p)
    largest = np.max(np.abs(np.sum(joint.rows * points[:, None, None, :], axis=-1)), axis=(1, 2))
    points = points[largest < LARGEST]
    # The ball of this level would shorten them.
    wide = Sublevel(setup, under_test, 30.0, 1.0 + float(np.linalg.norm(points, axis=1).max()), setup.target.p)
    tried = wide.points(np.zeros((len(points), joint.tokens.shape[2])), points)
    margins = lowest_margins(joint, tried.p)
    log_q = joint.log_nonoptimality(tried.log_weights)
    odds = np.take_along_axis(tried.log_weights, joint.alpha[None, :, None], axis=2)[..., 0] - log_q
    rounding = 4 * wide.relative(tried.p)[:, None]
    yield at_least(
        "odds", Form.EFFECTIVE, margins, odds, rounding=rounding, why=JOINT_SUBLEVEL, points="point and input"
    )
    yield at_least(
        "odds-reversed",
        Form.EFFECTIVE,
        odds + np.log(T - 1),
        margins,
        rounding=rounding,
        why=JOINT_SUBLEVEL,
        points="point and input",
    )
    bounds = level.other_bounds
    inside = level.hunted(rng)
    if (bounds <= 0.5).any():
        low = lowest_margins(joint, inside.p)[:, bounds <= 0.5]
        yield at_least(
            "quadrant-from-r0",
            Form.EFFECTIVE,
            low,
            0.0,
            rounding=level.relative(inside.p)[:, None],
            why=JOINT_SUBLEVEL,
            points="pair (v, p) and input",
        )


def lowest_margins(joint: Joint, p: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m n"]:
    """m_i, shape (m, n)."""
    rows = np.sum(joint.rows * p[:, None, None, :], axis=-1)
    return np.asarray(np.min(np.where(joint.others, rows, np.inf), axis=2))
