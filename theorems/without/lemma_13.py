"""Lemma 13 without Assumption C over the supports, separation, the schedule of radii, or selection of the tokens α.

Supports are the inputs with the smallest label margin; the quadrant of α is the set of prompts at which no token has a
larger logit than α_i. The joint regularization path (v_r, p_R) of each counterexample to Theorem 6 stays in this
quadrant without being restricted to it, so the counterexample refutes the lemma, too. The exception is
``leaves_the_quadrant``, whose path leaves the quadrant.

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
    "Let a support have no dual: as in Theorem 6, the prompt then gives this support less than its margin, because a"
    " tilt of the head, at almost no cost, raises its label margin. The path selects α, so it lies in the quadrant.",
    refutes=WITHIN,
)
head_too_slow = theorem_6.head_too_slow.of(
    "lemma-13",
    "Let r = o(R): the label margin that a non-support has to spare, r·slack logits, is then negligible against RΘ. The"
    " path converges to p_mm, which lies in the quadrant. So the lemma needs a schedule, and the paper states none.",
    refutes=WITHIN,
)
leaves_the_quadrant = theorem_6.selects_another.of(
    "lemma-13",
    "Let p_R leave the quadrant of α, against the lemma's hypothesis. If selecting another token of a non-support"
    " leaves label margin to spare and gives the supports a wider margin, p_R goes to the quadrant of this token, as in"
    " Theorem 6.",
    refutes="p_R/R → p_relax/‖p_relax‖, even outside the quadrant of α",
)
not_selectable = Weakening(
    "lemma-13", partial(head_is_max_margin, quadrant=True), "within the quadrant of α, v_r/r → v̄_mm"
).without(
    "separable",
    "Let all tokens of an input have the same key: every p is in the input's quadrant, but no p selects its token. The"
    " input's feature stays mixed, and the head converges to the max-margin direction of the mixed features.",
    cases=plain_joint_cases(n=(2, 2), d=2, key_queries=True),
    violation=cannot_select,
)
