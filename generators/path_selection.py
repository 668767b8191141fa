"""The assumption that the joint regularization path selects α in the limit, as Theorem 6 and Lemma 12 suppose."""

from __future__ import annotations

import math

from generators.case import Case
from generators.finding import Finding
from reference_attention.paths.joint_minimisers import follow_from
from reference_attention.paths.joint_risk import joint_of_chosen
from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible

RADII = (1e3, 1e6)
"""The values of R Θ, radius of the prompt times margin of p_relax, at which the path is examined."""
CLEARLY = 30.0
"""The least difference of logits that counts as a growing lead (or lag) of α; smaller ones may remain bounded."""


def prompt_selects(case: Case) -> Finding:
    """Check that the prompts p_R of the path select α: the least (k_iα − k_it)·p_R tends to ∞ with R = ‖p_R‖.

    The path with the head's radius e^{RΘ/2} is computed at RΘ = 10³ and 10⁶, where Θ is the margin of p_relax.
    """
    if case.dataset is None:
        return Finding(None, "the case has keys and scores only; give tokens X and labels Y")
    keys = case.problem.keys
    joint = joint_of_chosen(case.dataset.signed_tokens, keys, case.chosen_tokens)
    if joint is None:
        return Finding(False, "v_mm does not exist")
    relaxed = relaxed_max_margin(keys, case.chosen_tokens, joint.svm.support)
    if isinstance(relaxed, Infeasible):
        return Finding(False, "p_relax does not exist, so no prompt selects α")
    rate = relaxed.margin / 2
    paths = follow_from(
        joint, lambda R: max(math.log(R), rate * R), RADII, relaxed.norm, first=relaxed.p, seed=case.seed
    )
    early, late = (pair.lowest_margin for pair in min(paths, key=lambda path: path[-1].rank))
    evidence = f"the smallest (k_iα − k_it)·p_R is {early:.6g} at RΘ = {RADII[0]:g} and {late:.6g} at RΘ = {RADII[1]:g}"
    if min(early, late) > CLEARLY:
        return Finding(True, evidence)
    return Finding(False if max(early, late) < -CLEARLY else None, evidence)
