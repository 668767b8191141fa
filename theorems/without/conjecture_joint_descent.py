"""The conjecture on joint descent without selection, Assumption C over the supports, or separation.

Supports are the inputs with the smallest label margin. Joint descent trains head v and prompt p by steps of constant
length, so that their norms grow by at most 0.1/Θ = 0.1‖p_mm‖ per step. A run has :data:`STEPS` steps. A distance from
the conjectured limit refutes this limit if at the end it is more than a hundred logits, 100/(Θ‖p‖), and does not
decrease.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Figure 3; :mod:`.conjecture_joint_descent`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.joint_run import STEPS as SHORT
from generators.joint_run import joint_run, largest_nonoptimality
from reference_attention.paths.joint_risk import Joint
from reference_attention.paths.scheduled_direction import scheduled_direction
from reference_attention.problem import Dataset
from reference_attention.training.joint_descent import JointTrajectory
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.token_selection.joint_paths.conjecture_joint_descent import JOINT_DESCENT
from theorems.without.free_mixing import assumption_c_over_supports_fails
from theorems.without.joint_drawing import plain_joint_cases
from theorems.without.joint_path_claims import joint_of, separator_of
from theorems.without.not_selected import one_support
from theorems.without.theorem_5 import not_followed
from theorems.without.weakening import Weakening

STEPS = 8000
"""Number of steps of the long run on which the claims are judged."""
CLEAR = 0.15
"""Smallest distance from the conjectured limit, at the end of a short run, for which a search makes the long run."""


@st.composite
def _free_token(draw: DrawFn) -> Case:
    """Draw inputs with optimal tokens (1, a) and (1, −b), both of label margin 1, as is the other token of input 1."""
    Y = np.array(draw(st.lists(st.sampled_from((1.0, -1.0)), min_size=2, max_size=2)))
    a, b, c, x, y = (draw(st.integers(*ends)) for ends in ((1, 2), (1, 2), (-2, 2), (-1, 0), (-1, 1)))
    z = np.array([[[1.0, a], [x, y]], [[1.0, -b], [1.0, c]]])
    data = Dataset(Y[:, None, None] * z + 0.0, Y, np.array([1.0, 0.0]))
    return Case(data.problem, dataset=data, alpha=np.zeros(2, dtype=np.int64), seed=draw(st.integers(0, 9)))


def _run(case: Case, steps: int) -> tuple[Joint, JointTrajectory, float] | None:
    """Return the joint problem, its run and the margin Θ = 1/‖p_mm‖; None if v_mm or p_mm does not exist."""
    joint = joint_of(case)
    separator = None if joint is None else separator_of(joint)
    if joint is None or separator is None:
        return None
    return joint, joint_run(case, joint, separator, steps=steps), separator.margin


def _distances(joint: Joint, run: JointTrajectory, at: int) -> tuple[float, float]:
    """Return two distances at step ``at``: of p/‖p‖ from p(c) with c = ‖v‖/‖p‖, and of v/‖v‖ from v̄_mm.

    p(c) is :func:`~reference_attention.paths.scheduled_direction.scheduled_direction`, and v̄_mm the max-margin
    direction of the head.
    """
    v, p = run.heads[at], run.prompts[at]
    sizes = float(np.linalg.norm(v)), float(np.linalg.norm(p))
    prompt = np.linalg.norm(p / sizes[1] - scheduled_direction(joint, sizes[0] / sizes[1]))
    return float(prompt), float(np.linalg.norm(v / sizes[0] - joint.svm.direction))


def _goes_elsewhere(case: Case) -> float:
    """Return the larger of the two distances of :func:`_distances` at the end of a short run, minus :data:`CLEAR`.

    Return −1 if v_mm or p_mm does not exist, the loss is not the logistic loss, or the data's head is not v_mm.
    """
    result = _run(case, SHORT)
    plain = case.dataset is not None and case.dataset.loss.name == "logistic"
    if result is None or not plain or not np.array_equal(case.dataset.v, result[0].svm.v):  # type: ignore[union-attr]
        return -1.0
    return max(_distances(result[0], result[1], SHORT)) - CLEAR


def _selects_elsewhere(case: Case) -> float:
    """Return the value of :func:`_goes_elsewhere` if joint descent selects the tokens α, and −2 otherwise."""
    result = _run(case, SHORT)
    if result is None or not largest_nonoptimality(result[0], result[1].prompts[SHORT // 4 :]) < 0.5:
        return -2.0
    return _goes_elsewhere(case)


def _limit_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims p/‖p‖ → p(c) with c = lim ‖v‖/‖p‖, and v/‖v‖ → v̄_mm (symbols: see :func:`_distances`).

    Each claim holds if the distance is at most one logit at the end (in units of 1/(Θ‖p‖)), or halves over the last
    three quarters of the run.
    """
    result = _run(case, STEPS)
    if result is None:
        raise not_followed("v_mm or p_mm does not exist")
    joint, run, theta = result
    early, late = _distances(joint, run, STEPS // 4), _distances(joint, run, STEPS)
    rho = theta * float(np.linalg.norm(run.prompts[STEPS]))
    for name, before, after in zip(("prompt-goes-to-p(c)", "head-goes-to-v_mm"), early, late, strict=True):
        detail = f"distances {before:.6g} and {after:.6g} at steps {STEPS // 4} and {STEPS}, where Θ‖p‖ = {rho:.6g}"
        slack = 0.0 if after < before / 2 else -after
        yield Claim(name, Form.LIMIT, slack, 1 / rho, JOINT_DESCENT, detail)


selects_others = Weakening(
    "conjecture-joint-descent", _limit_claims, "normalized joint descent has p/‖p‖ → p(lim ‖v‖/‖p‖) and v/‖v‖ → v̄_mm"
).without(
    "descent-selects",
    "Let descent select other tokens than α: the prompt then converges to the separator of these tokens. A non-support"
    " may have a token with more label margin than α, or the start may favour other tokens.",
    cases=one_support,
    violation=_goes_elsewhere,
)

SELECTING = Weakening(
    "conjecture-joint-descent",
    _limit_claims,
    "if normalized joint descent selects α, p/‖p‖ → p(lim ‖v‖/‖p‖) and v/‖v‖ → v̄_mm",
)
free_token = SELECTING.without(
    "optimal-support-tokens",
    "Let another token of a support have α's label margin: weight on it costs nothing, so its row exerts no pull."
    " Descent selects α by the pull of the other rows; these may select α at this support, too, but do not keep up"
    " the margin of its row.",
    cases=_free_token,
    fails=assumption_c_over_supports_fails,
    violation=_selects_elsewhere,
)

implied_separability = SELECTING.without(
    "separable",
    "Drop the assumption: it is superfluous, as it follows from the others. If descent selects α, some prompt has 1"
    " − s_iα < ½ for all i, so (k_iα − k_it)·p > 0 for all i and t (Lemma 12), and a multiple of that prompt is"
    " feasible for ATT-SVM(α).",
    cases=plain_joint_cases(n=(1, 3), d=2, key_queries=True),
)
