"""Theorem 5 without Assumption C or separation.

Notation: as in :mod:`theorems.without.joint_path_claims`.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3.1, Theorem 5, Assumption C, Figure 3(b).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from generators.case import Case
from reference_attention.paths.joint_path import exponential_schedule
from reference_attention.paths.joint_risk import Joint
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.without.free_mixing import assumption_c_fails
from theorems.without.joint_drawing import plain_joint_cases
from theorems.without.joint_path_claims import (
    RADII,
    follow_joint_path,
    head_claim,
    joint_of,
    prompt_claim,
    relaxed_solution,
    selects_best,
    separator_of,
)
from theorems.without.mixed_features import head_is_max_margin, mixed_margins
from theorems.without.weakening import Weakening, weaken

CLEAR = 0.05
"""A hunt checks the claims only if the claimed and the expected limit, unit vectors, are at least this far apart."""


def not_followed(why: str) -> Undecided:
    """Return the exception for a case on whose joint path nothing can be claimed, with the reason ``why``."""
    return Undecided("prompt-is-max-margin", why, Form.LIMIT)


def readable(case: Case, joint: Joint) -> bool:
    """Check that a case has readable data, and that no other selection of tokens has as large a label margin as α.

    Readable data have the logistic loss and the max-margin head v_mm, with entries that are multiples of ¼.
    """
    data = case.dataset
    assert data is not None
    plain = data.loss.name == "logistic" and np.array_equal(data.v, joint.svm.v)
    plain = plain and np.array_equal(4 * data.v, np.rint(4 * data.v))
    return bool(plain and selects_best(joint))


def _relaxes(case: Case) -> float:
    """Return the distance of p̄_relax from p̄_mm, both unit vectors, minus :data:`CLEAR`; −1 for unreadable cases."""
    joint = joint_of(case)
    if joint is None or not readable(case, joint):
        return -1.0
    separator, relaxed = separator_of(joint), relaxed_solution(joint)
    if separator is None or relaxed is None:
        return -1.0
    return float(np.linalg.norm(separator.direction - relaxed.direction)) - CLEAR


@weaken(
    "theorem-5",
    without="optimal-tokens",
    refutes="p_R/R → p̄_mm as r, R → ∞ (while v_r/r → v̄_mm, and p_R selects α)",
    cases=plain_joint_cases(n=(2, 3), d=2),
    fails=assumption_c_fails,
    violation=_relaxes,
)
def mixing_is_free(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let an input's label margin exceed Γ, the smallest one: it can mix tokens a little without lowering Γ.

    So Assumption C fails, and the prompt need not select this input's token by the full margin: the joint path's prompt
    converges in direction to p_relax of Theorem 6. This is Figure 3(b).
    """
    joint = joint_of(case)
    separator = None if joint is None else separator_of(joint)
    if joint is None or separator is None:
        raise not_followed("v_mm or p_mm does not exist")
    pairs = follow_joint_path(joint, exponential_schedule(separator.margin / 2), RADII, separator.norm, case.seed)
    if not selects_best(joint):
        raise not_followed("another selection has a label margin as large as that of α")
    yield prompt_claim("prompt-is-max-margin", pairs, separator.direction)
    yield head_claim(pairs)


def cannot_select(case: Case) -> float:
    """Return a lower bound of the distance of v_r/r from v̄_mm if no prompt selects α, minus :data:`CLEAR`.

    v_r is the head of the joint path, and v̄_mm the max-margin direction. Return −1 if there is no bound or the case is
    not readable.
    """
    joint = joint_of(case)
    if joint is None or not readable(case, joint) or not np.any(joint.rows):
        return -1.0
    mixed = mixed_margins(joint, case.seed)
    return -1.0 if mixed is None else mixed.relative_gap - CLEAR


cannot_be_selected = Weakening("theorem-5", head_is_max_margin, "v_r/r → v̄_mm as r, R → ∞").without(
    "separable",
    "Let no prompt select α at all inputs: the features then stay mixed for every R. The head converges to the"
    " max-margin direction of the best mixed features. (p_mm does not exist, so only the head's limit can be stated.)",
    cases=plain_joint_cases(n=(1, 2), d=2, key_queries=True),
    violation=cannot_select,
)
