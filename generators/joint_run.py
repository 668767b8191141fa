"""A run of normalized joint descent on head v and prompt p, and the check that the run selects the chosen tokens α.

The conjecture on joint descent assumes that the run selects α.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.finding import Finding
from reference_attention.paths.joint_risk import Joint, joint_of_chosen
from reference_attention.paths.scheduled_direction import critical_ratio
from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from reference_attention.training.joint_descent import JointTrajectory, joint_descent

Descent = Callable[..., JointTrajectory]

STEPS = 480
"""The number of iterations of a run."""
RATIOS = (1.0, 0.5, 2.0)
"""The ratios η_v/η_p of the step sizes of v and p that are drawn, in units of Θ/Γ (margins of p_mm and v_mm)."""
SHARES = (0.5, 0.75, 0.25, 2.0)
"""The ratios c = η_v/η_p of step sizes in units of c*, the critical ratio; they are drawn if c* > 0.

For c < c* the limit direction of the prompt selects α at all inputs; for c ≥ c* the limit direction may tie α with
other tokens at inputs that do not support v_mm.
"""
LEADS = (0.0, 8.0, 32.0)
"""Multiples of p_mm that are added to a small random start of the prompt, so that α has larger logits."""
CLEARLY = 0.01
"""At the last step every 1 − s_iα, with the weight s_iα of α_i, must be below this number if α counts as selected."""


@dataclass(frozen=True, eq=False)
class DescentSettings:
    """The settings of a run of normalized joint descent.

    Attributes:
        head, prompt: the starts v(0), shape (d,), and p(0), shape (k,).
        steps: the number of steps.
        head_step, prompt_step: the step sizes η_v of the head and η_p of the prompt.
    """

    head: Float64[np.ndarray, "d"]
    prompt: Float64[np.ndarray, "k"]
    steps: int
    head_step: float
    prompt_step: float

    def run(self, joint: Joint, *, descent: Descent = joint_descent, **under_test: Any) -> JointTrajectory:
        """Run normalized joint descent with these settings.

        Args:
            joint: tokens, keys, α and the SVM for v_mm.
            descent: the descent to run, :func:`reference_attention.training.joint_descent.joint_descent` or another.
            under_test: the functions to test, as arguments ``weights``, ``gradient`` and ``by_head`` of the descent.
        """
        return descent(
            joint.tokens,
            joint.keys,
            self.head,
            self.prompt,
            steps=self.steps,
            head_step=self.head_step,
            prompt_step=self.prompt_step,
            **under_test,
        )


def descent_settings(
    case: Case, joint: Joint, separator: MaxMargin, *, steps: int = STEPS, leads: bool = True
) -> DescentSettings:
    """Draw settings with the seed of the case: v(0) = v_mm, p(0) small or selecting α, step size η_p = 0.1/Θ.

    Args:
        case: the case.
        joint: tokens, keys, α and the SVM for v_mm.
        separator: the solution p_mm of ATT-SVM(α).
        steps: the number of steps.
        leads: whether p(0) may already favour α, and η_v/η_p is drawn from :data:`SHARES` if c* > 0; otherwise p(0) is
            small and random, and the ratio is drawn from :data:`RATIOS`.
    """
    rng = case.rng()
    theta = separator.margin
    ratio = float(rng.choice(RATIOS)) * theta / joint.svm.margin
    critical = _critical(joint) if leads else 0.0
    if critical > 0:
        ratio = float(rng.choice(SHARES)) * critical
    unit = joint.longest_row
    start = np.asarray(rng.normal(size=joint.keys.shape[2]) * (0.1 / unit))
    if leads:
        start = start + float(rng.choice(LEADS)) * separator.p
    return DescentSettings(joint.svm.direction / joint.svm.margin, start, steps, ratio * 0.1 / theta, 0.1 / theta)


def _critical(joint: Joint) -> float:
    """Return the critical ratio c* of :data:`SHARES`, or 0 if p_relax of Theorem 6 does not exist."""
    relaxed = relaxed_max_margin(joint.keys, joint.alpha, joint.svm.support)
    return 0.0 if isinstance(relaxed, Infeasible) else critical_ratio(joint, relaxed)


def joint_run(case: Case, joint: Joint, separator: MaxMargin, *, steps: int = STEPS) -> JointTrajectory:
    """Run normalized joint descent from a small random prompt, with the step sizes of :func:`descent_settings`."""
    return descent_settings(case, joint, separator, steps=steps, leads=False).run(joint)


def continue_run(
    steps_to_run: DescentSettings, joint: Joint, run: JointTrajectory, **under_test: Any
) -> JointTrajectory:
    """Continue ``run``, with the step sizes of ``steps_to_run``, until it has four times as many steps."""
    steps = 3 * (len(run.prompts) - 1)
    more = replace(steps_to_run, head=run.heads[-1], prompt=run.prompts[-1], steps=steps).run(joint, **under_test)
    return JointTrajectory(np.concatenate([run.heads, more.heads[1:]]), np.concatenate([run.prompts, more.prompts[1:]]))


def largest_nonoptimality(joint: Joint, prompts: Float64[np.ndarray, "s k"]) -> float:
    """Return the maximum over prompts and inputs of 1 − s_iα, where s_iα is the softmax weight of α_i."""
    return math.exp(float(np.max(joint.log_nonoptimality(joint.log_weights(prompts)))))


def descent_selects(case: Case) -> Finding:
    """Run normalized joint descent, and check that the prompt selects the chosen tokens α.

    From a quarter of the run on, every softmax weight s_iα of a chosen token has to exceed ½; at the end every 1 − s_iα
    has to be less than 0.01 (:data:`CLEARLY`).
    """
    if case.dataset is None:
        return Finding(None, "the case has keys and scores only; give tokens X and labels Y")
    joint = joint_of_chosen(case.dataset.signed_tokens, case.problem.keys, case.chosen_tokens)
    separator = max_margin(case.problem.keys, case.chosen_tokens)
    if joint is None or isinstance(separator, Infeasible):
        return Finding(False, "v_mm or p_mm does not exist")
    run = descent_settings(case, joint, separator).run(joint)
    throughout, last = (largest_nonoptimality(joint, run.prompts[k:]) for k in (STEPS // 4, STEPS))
    holds = throughout < 0.5 and last < CLEARLY
    return Finding(
        holds, f"1 − s_iα is at most {throughout:.3g} from step {STEPS // 4} on and {last:.3g} at step {STEPS}"
    )
