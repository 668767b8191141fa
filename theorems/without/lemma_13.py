"""Lemma 13 without Assumption C over the supports, separation, the schedule of radii, or selection.

The paths of these counterexamples stay in the quadrant of α without being restricted to it, so each counterexample to
Theorem 6 refutes the lemma. The exception is ``leaves_the_quadrant``, whose path leaves it.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix C.2, Lemma 13.
"""

from __future__ import annotations

from functools import partial

from theorems.without import theorem_6
from theorems.without.joint_drawing import plain_joint_cases
from theorems.without.mixed_features import head_is_max_margin
from theorems.without.theorem_5 import cannot_select
from theorems.without.weakening import Weakening

WITHIN = "within the quadrant of α, p_R/R → p_relax/‖p_relax‖"

support_without_dual = theorem_6.support_without_dual.of(
    "lemma-13",
    "Let a support have no dual: as in Theorem 6, the prompt then gives it less than its margin. A tilt of the head"
    " that costs next to nothing draws it off the margin. The path selects α, so that it lies in the quadrant.",
    refutes=WITHIN,
)
head_too_slow = theorem_6.head_too_slow.of(
    "lemma-13",
    "Let r = o(R): what a non-support has to spare, r·slack logits, is then nothing against RΘ. The path goes to"
    " p_mm, which lies in the quadrant. The lemma is false without a schedule, and the paper states none.",
    refutes=WITHIN,
)
leaves_the_quadrant = theorem_6.selects_another.of(
    "lemma-13",
    "Let p_R leave the quadrant of α, in which the lemma's hypothesis says that it stays. Where another token of a"
    " non-support has label margin to spare and leaves the supports a wider margin, p_R goes to the quadrant of that"
    " one, as in Theorem 6.",
    refutes="p_R/R → p_relax/‖p_relax‖, in the quadrant of α or not",
)
not_selectable = Weakening(
    "lemma-13", partial(head_is_max_margin, quadrant=True), "within the quadrant of α, v_r/r → v̄_mm"
).without(
    "separable",
    "Let all tokens of an input have the same key: every p is in its quadrant, and none selects its token. Its feature"
    " stays mixed, and the head turns to the max-margin direction of the mixed features.",
    cases=plain_joint_cases(n=(2, 2), d=2, key_queries=True),
    violation=cannot_select,
)
