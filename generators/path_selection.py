"""Whether the joint regularization path selects α: the hypothesis of Theorem 6 and Lemma 12 that p_R does so asymptotically."""

from __future__ import annotations

import math

import numpy as np

from generators.case import Case
from generators.finding import Finding
from reference_attention.paths.joint import Joint, chosen_of, relative_log_risk
from reference_attention.paths.joint_path import joint_path
from reference_attention.svm.label_svm import label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible

RADII = (1e3, 1e6)
"""RΘ_relax at which the path is looked at."""
CLEARLY = 30.0
"""Logits by which α is ahead (or behind) where that is no question of an O(1) term."""


def prompt_selects(case: Case) -> Finding:
    """p_R selects α, min (k_iα − k_it)·p_R → ∞; found by following the path along r = e^{RΘ/2} to RΘ = 10⁶."""
    if case.dataset is None:
        return Finding(None, "the case has keys and scores only; give tokens X and labels Y")
    tokens, keys = case.dataset.Y[:, None, None] * case.dataset.X, case.problem.keys
    svm = label_svm(chosen_of(tokens, case.chosen))
    if isinstance(svm, Infeasible):
        return Finding(False, "v_mm does not exist")
    joint = Joint(tokens, keys, case.chosen, svm)
    relaxed = relaxed_max_margin(keys, case.chosen, svm.support)
    if isinstance(relaxed, Infeasible):
        return Finding(False, "p_relax does not exist, so no prompt selects α")
    radii, rate = np.array(RADII) * relaxed.norm, relaxed.margin / 2
    rng = np.random.default_rng(case.seed)
    found = []
    for start in (relaxed.p, *rng.normal(size=(2, keys.shape[2]))):
        path = joint_path(joint, lambda R: max(math.log(R), rate * R), radii, start)
        margins = [float((joint.rows @ p)[joint.others].min()) for p in path.prompts]
        log_r = max(math.log(radii[-1]), rate * radii[-1])
        risk = float(relative_log_risk(joint, log_r, path.offsets[-1], joint.log_weights(path.prompts[-1])))
        found.append((risk if math.isfinite(risk) else math.inf, margins))
    early, late = min(found, key=lambda one: one[0])[1]
    said = f"the smallest (k_iα − k_it)·p_R is {early:.6g} and {late:.6g} at RΘ = {RADII[0]:g} and {RADII[1]:g}"
    if min(early, late) > CLEARLY:
        return Finding(True, said)
    return Finding(False if max(early, late) < -CLEARLY else None, said)
