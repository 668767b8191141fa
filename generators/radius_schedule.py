"""Predicate of the assumption that Theorem 6 lacks: how fast the head's radius r must grow with the prompt's radius R.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 6; the schedule is derived in
``theorems/token_selection/joint_paths/joint_constants.py``.
"""

from __future__ import annotations

import numpy as np

from generators.case import Case
from generators.finding import Finding, number
from generators.joint_cases import schedule_of
from reference_attention.paths.joint_risk import joint_of_chosen
from reference_attention.paths.scheduled_direction import critical_ratio
from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible


def radius_schedule(case: Case) -> Finding:
    """Check that r ≥ c* R for all radii r of the head and R of the prompt, for the critical ratio c*.

    The ratio c* is the largest (Θ_relax − ρ_i)^+/slack_i of an input i that does not support v_mm, where Θ_relax is the
    margin of p_relax, ρ_i the margin of input i along p_relax, and slack_i = v̄_mm·Y_i x_iα − Γ the excess of the
    input's label margin over Γ. The radii are the arrays ``head_radii`` (or ``log_head_radii``, as r may grow like
    e^{RΘ}) and ``prompt_radii``, increasing, of shape (k,). Without these arrays the assumption holds, as the statement
    uses its default schedule. Rounding of c* is harmless, because the schedule r = c* R has the same limit.
    """
    schedule = schedule_of(case)
    if schedule is None:
        return Finding(True, "no radii are given; the statement uses its default schedule")
    if case.dataset is None:
        return Finding(None, "the case has keys and scores only; give tokens X and labels Y")
    log_r, R = schedule
    if log_r.shape != R.shape or not (R > 0).all() or not (np.diff(R) > 0).all() or not (np.diff(log_r) > 0).all():
        return Finding(False, "head and prompt radii are not positive, increasing and of the same length")
    joint = joint_of_chosen(case.dataset.signed_tokens, case.problem.keys, case.chosen_tokens)
    if joint is None:
        return Finding(False, "v_mm does not exist")
    relaxed = relaxed_max_margin(joint.keys, joint.alpha, joint.svm.support)
    if isinstance(relaxed, Infeasible):
        return Finding(False, "p_relax does not exist")
    threshold = critical_ratio(joint, relaxed)
    smallest = float(np.exp(np.min(np.minimum(log_r - np.log(R), 690.0))))
    evidence = f"r/R is at least {number(smallest, threshold)}, c* = {number(threshold, smallest)}"
    return Finding(smallest >= threshold, evidence)
