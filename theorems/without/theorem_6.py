"""Theorem 6 without Assumption C over the supports, separation, the schedule of radii, or selection.

Notation: as in :mod:`theorems.without.joint_path_claims`.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3.2, Theorem 6;
:mod:`theorems.token_selection.joint_paths.joint_constants`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.joint_cases import schedule_of
from reference_attention.paths.joint_minimisers import Pair
from reference_attention.paths.joint_path import Schedule
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.flow_claims import NORM
from theorems.without.free_mixing import assumption_c_over_supports_fails
from theorems.without.joint_drawing import plain_joint_cases
from theorems.without.joint_path_claims import (
    follow_joint_path,
    head_claim,
    joint_of,
    prompt_claim,
    relaxed_solution,
    selects_best,
    separator_of,
)
from theorems.without.mixed_features import head_is_max_margin
from theorems.without.not_selected import one_support, path_of, shorter_elsewhere
from theorems.without.theorem_5 import CLEAR, cannot_select, not_followed, readable
from theorems.without.weakening import Weakening


def has_weak_support(case: Case) -> float:
    """Return which share of the sum of p_mm's dual variables is that of supports with dual 0 in the head's SVM.

    Supports are the inputs with the smallest label margin. Return −1 if the case is not readable (see
    :func:`~theorems.without.theorem_5.readable`), p_mm does not exist, some input is no support, or every support has a
    positive dual variable.
    """
    joint = joint_of(case)
    if joint is None or not readable(case, joint) or not joint.svm.support.all() or (joint.svm.duals > 0).all():
        return -1.0
    separator = separator_of(joint)
    if separator is None:
        return -1.0
    weak = joint.svm.duals <= 0
    return float(separator.duals[weak].sum() / separator.duals.sum())


def _path(case: Case) -> tuple[list[Pair], Float64[np.ndarray, "k"]]:
    """Return the joint path (v_r, p_R) for r = e^{RΘ/2}, and the direction of p_relax, its limit in Theorem 6.

    Θ is 1/‖p_relax‖.
    """
    path = path_of(case)
    if path is None:
        raise not_followed("v_mm or p_relax does not exist")
    return path


def target_claims(pairs: list[Pair], target: Float64[np.ndarray, "k"]) -> Iterator[Claim]:
    """Yield the claims p_R/R → target and v_r/r → v̄_mm if α is the best selection and the pairs select α.

    α is the best selection if no other choice of tokens has as large a label margin. ``pairs`` are the computed heads
    v_r and prompts p_R; v̄_mm is the max-margin direction of the head.
    """
    if not selects_best(pairs[-1].joint):
        raise not_followed("another selection has a label margin as large as that of α")
    if not pairs[-1].lowest_margin > 0:
        raise not_followed("the prompt that was found does not select α")
    yield prompt_claim("prompt-is-relaxed", pairs, target)
    yield head_claim(pairs)


def weak_support_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims about the limits of head and prompt in Theorem 6, for the radii r = e^{RΘ/2} of the head."""
    yield from target_claims(*_path(case))


support_without_dual = Weakening(
    "theorem-6", weak_support_claims, "p_R/R → p_relax/‖p_relax‖ if p_R selects α"
).without(
    "optimal-support-tokens",
    "Let a support have a zero dual: it lies on the margin by coincidence, and mixing its tokens costs no label margin"
    " to first order. A tilt y of the head raises its output by y and costs only y²/2r, so Assumption C fails over the"
    " supports. The best tilt is y ≈ log r, which is RΘ/2 logits for r = e^{RΘ/2}. So the path gives this support RΘ/2"
    " less margin than p_relax does.",
    cases=plain_joint_cases(n=(2, 2), d=2, zero_others=True),
    fails=assumption_c_over_supports_fails,
    violation=has_weak_support,
)
not_selectable = Weakening("theorem-6", head_is_max_margin, "v_r/r → v̄_mm as r, R → ∞").without(
    "separable",
    "Let no prompt select α at all inputs: the features then stay mixed. The head converges to the max-margin direction"
    " of the best mixed features. (The paper's own hypothesis, that p_R selects α asymptotically, already implies that"
    " p_mm exists.)",
    cases=plain_joint_cases(n=(2, 2), d=2, key_queries=True),
    violation=cannot_select,
)


HEAD_RADII, PROMPT_RADII = (1.0, 1e3), (10.0, 1e7)
"""First and last radius r of the head and R of the prompt in a drawn case; r/R decreases, as it does for r = o(R)."""
GROWN = 999.0
"""Smallest factor by which the head's radius r must grow, so that a limit as r → ∞ is visible."""


@st.composite
def slow_schedules(draw: DrawFn) -> Case:
    """Draw joint problems with radii r = o(R) of head (r) and prompt (R), up to RΘ of 10⁶ or more.

    Θ is the prompt's margin.
    """
    case = draw(plain_joint_cases(n=(2, 3), d=2))
    radii = {"head_radii": np.array(HEAD_RADII), "prompt_radii": np.array(PROMPT_RADII)}
    return case.replace(arrays=MappingProxyType(radii))


def slow_schedule(case: Case) -> tuple[Schedule, Float64[np.ndarray, "m"]] | None:
    """Return two things: the function R ↦ log r (radii of prompt and head), and the array of the case's radii R.

    The function interpolates the case's radii linearly in logarithms. Return None unless r and R increase and r/R
    decreases.
    """
    radii = schedule_of(case)
    if radii is None or radii[0].shape != radii[1].shape or radii[1].size < 2 or not (radii[1] > 0).all():
        return None
    log_r, log_R = radii[0], np.log(radii[1])
    if not ((np.diff(log_r) > 0).all() and (np.diff(log_R) > 0).all() and (np.diff(log_r - log_R) < 0).all()):
        return None

    def schedule(R: float) -> float:
        j = int(np.clip(np.searchsorted(log_R, math.log(R)) - 1, 0, len(log_R) - 2))
        slope = (log_r[j + 1] - log_r[j]) / (log_R[j + 1] - log_R[j])
        return float(log_r[j] + slope * (math.log(R) - log_R[j]))

    return schedule, radii[1]


def relaxes_too_early(case: Case) -> float:
    """Return the distance between the directions of p_relax and p_mm minus :data:`CLEAR`.

    Return −1 if the radii are too small to show a limit. The head's radius must grow a thousandfold, the prompt's
    radius R to RΘ = 10⁶, where Θ = 1/‖p_relax‖. Also return −1 if the case is not readable, or p_mm or p_relax does not
    exist.
    """
    joint = joint_of(case)
    if joint is None or not readable(case, joint):
        return -1.0
    separator, relaxed, radii = separator_of(joint), relaxed_solution(joint), schedule_of(case)
    if separator is None or relaxed is None or radii is None or slow_schedule(case) is None:
        return -1.0
    r, R = np.exp(radii[0]), radii[1]
    if R[-1] < NORM * relaxed.norm or r[-1] < GROWN * r[0] or r[0] < 1:
        return -1.0
    return float(np.linalg.norm(separator.direction - relaxed.direction)) - CLEAR


def schedule_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims about the limits of head and prompt in Theorem 6, for the case's own radii."""
    joint, schedule_and_radii = joint_of(case), slow_schedule(case)
    relaxed = None if joint is None else relaxed_solution(joint)
    if joint is None or relaxed is None or schedule_and_radii is None:
        raise not_followed("v_mm or p_relax does not exist, or the radii do not satisfy r = o(R)")
    schedule, radii = schedule_and_radii
    units = tuple((radii[[0, -1]] / relaxed.norm).tolist())
    pairs = follow_joint_path(joint, schedule, units, relaxed.norm, case.seed)
    yield from target_claims(pairs, relaxed.direction)


head_too_slow = Weakening("theorem-6", schedule_claims, "p_R/R → p_relax/‖p_relax‖ if p_R selects α").without(
    "radius-schedule",
    "Let r = o(R): the label margin that a non-support has to spare, r·slack logits, is then negligible against RΘ. So"
    " the non-support needs its full margin like all others, and the path converges to p_mm. The paper's theorem does"
    " not say how r and R grow; some schedule must be assumed.",
    cases=slow_schedules,
    violation=relaxes_too_early,
)


def unselected_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims about the limits of head and prompt in Theorem 6, even if the prompt p_R does not select α."""
    pairs, target = _path(case)
    yield prompt_claim("prompt-is-relaxed", pairs, target)
    yield head_claim(pairs)


selects_another = Weakening("theorem-6", unselected_claims, "v_r/r → v̄_mm and p_R/R → p_relax/‖p_relax‖").without(
    "prompt-selects",
    "Let another token of a non-support have label margin to spare, and let selecting it give the supports a wider"
    " margin, R/‖p_relax‖ with a shorter p_relax. Then p_R selects this token; Assumption C, which is only about the"
    " supports, does not exclude it.",
    cases=one_support,
    violation=shorter_elsewhere,
)
