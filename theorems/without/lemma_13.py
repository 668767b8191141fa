"""Lemma 13 without Assumption C over the supports, separation, the schedule of radii, or selection.

The paths of these counterexamples stay in the quadrant of α by themselves, so what refutes Theorem 6 refutes the
lemma; except for the last one, which leaves out the assumption that they stay there.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix C.2, Lemma 13.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.free_mixing import assumption_c_over_supports_fails
from theorems.without.joint_drawing import plain_joint_cases
from theorems.without.mixed_features import head_with_mixed_features
from theorems.without.not_selected import one_support, shorter_elsewhere
from theorems.without.theorem_5 import cannot_select
from theorems.without.theorem_6 import (
    has_weak_support,
    relaxes_too_early,
    schedule_claims,
    slow_schedules,
    unselected_claims,
    weak_cases,
    weak_support_claims,
)
from theorems.without.weakened import weaken


@weaken(
    "lemma-13",
    without="optimal-support-tokens",
    refutes="within the quadrant of α, p_R/R → p_relax/‖p_relax‖",
    cases=weak_cases,
    fails=assumption_c_over_supports_fails,
    violation=has_weak_support,
)
def support_without_dual(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a support have no dual: as in Theorem 6, the prompt then gives it less than its margin.

    A tilt of the head that costs next to nothing draws it off the margin. The path selects α, so that it lies in the
    quadrant.
    """
    yield from weak_support_claims(case)


def _inseparable() -> SearchStrategy[Case]:
    return plain_joint_cases(n=(2, 2), d=2, key_queries=True)


@weaken(
    "lemma-13",
    without="separable",
    refutes="within the quadrant of α, v_r/r → v̄_mm",
    cases=_inseparable,
    violation=cannot_select,
)
def not_selectable(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let all tokens of an input have the same key: every p is in its quadrant, and none selects its token.

    Its feature stays mixed, and the head turns to the max-margin direction of the mixed features.
    """
    yield head_with_mixed_features(case, quadrant=True)


@weaken(
    "lemma-13",
    without="radius-schedule",
    refutes="within the quadrant of α, p_R/R → p_relax/‖p_relax‖",
    cases=slow_schedules,
    violation=relaxes_too_early,
)
def head_too_slow(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let r = o(R): what a non-support has to spare, r·slack logits, is then nothing against RΘ.

    The path goes to p_mm, which lies in the quadrant. The lemma is false without a schedule, and the paper states none.
    """
    yield from schedule_claims(case)


@weaken(
    "lemma-13",
    without="prompt-selects",
    refutes="p_R/R → p_relax/‖p_relax‖, in the quadrant of α or not",
    cases=one_support,
    violation=shorter_elsewhere,
)
def leaves_the_quadrant(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let p_R leave the quadrant of α, in which the lemma's hypothesis says that it stays.

    Where another token of a non-support has label margin to spare and leaves the supports a wider margin, p_R goes to
    the quadrant of that one, as in Theorem 6.
    """
    yield from unselected_claims(case)
