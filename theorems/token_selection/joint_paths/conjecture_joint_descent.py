"""A conjecture, not a theorem: the limit of normalized gradient descent on head v and prompt p together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.joint_cases import joint_cases
from generators.joint_run import continue_run, descent_settings, largest_nonoptimality
from reference_attention.paths.joint_risk import Joint
from reference_attention.paths.scheduled_direction import scheduled_direction
from reference_attention.risk import scaled_gradient, softmax_weights
from reference_attention.training.joint_descent import JointTrajectory, head_gradient, joint_descent
from theorems.core.claim import Claim, Form, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premises, sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.token_selection.joint_paths.joint_premises import JOINT_DATA, joint_data
from theorems.token_selection.joint_paths.joint_setup import JointSetup, joint_setup
from theorems.token_selection.joint_paths.joint_steps import JOINT_RUN, joint_run

JOINT_DESCENT = tolerance(
    "joint-descent",
    "‖p‖·‖p/‖p‖ − p(c)‖ at step 4k is at most twice its value at step k, twice one logit, or 1 + log 4 logits more",
    "argued rate of a conjecture: an O(1/R) deviation keeps R·deviation bounded, except that log R logits come to"
    " separate a tight token without a dual from the other tight tokens; another limit makes R·deviation grow fourfold",
)

PROMPT_RATE = sharper("prompt-rate")
HEAD_RATE = sharper("head-rate")

EXTENSIONS = 3
"""Largest number of times that a run is made four times as long, if it does not converge at the claimed rate."""
GROWTH = 2.0
"""The factor by which R·deviation may grow while R grows fourfold; with another limit it would grow fourfold, too.

R is the norm of v or p, and the deviation is the distance of its direction from the claimed limit.
"""


GAPS = (1.0, 0.5, 2.0)
"""Score gaps of the inputs that v_mm separates with more than the label margin; descent then usually selects α."""


def conjecture_cases() -> SearchStrategy[Case]:
    """Return small cases in which v_mm has more than the label margin on at least one input."""
    return joint_cases(non_supports=True, gaps=GAPS, max_n=3, max_T=3, max_d=4)


@statement(
    "conjecture-joint-descent",
    "conjecture: normalized joint descent goes to v_mm and p(lim ‖v‖/‖p‖)",
    source="Section 3, Figure 3 (experiments only)",
    claims=(*JOINT_DATA, *JOINT_RUN, PROMPT_RATE, HEAD_RATE),
    assumptions=("optimal-support-tokens", "separable", "descent-selects"),
    cases=conjecture_cases,
    kernel=SATURATED,
)
def conjecture(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the descent v ← v − η_v ∇_v L/‖∇_v L‖, p ← p − η_p ∇_p L/‖∇_p L‖ select α from some iterate on.

    *A conjecture: the paper shows Figure 3 and proves nothing about joint descent.* Then v/‖v‖ → v̄_mm, and p/‖p‖ → p(c)
    with c = lim ‖v‖/‖p‖ (η_v/η_p where steps are small against a logit). Here p(c) is the limit of the *regularization
    path* along r = cR (:mod:`reference_attention.paths.scheduled_direction`): p_mm for c → 0, p_relax for c ≥ c* (c* of
    Theorem 6). So whether joint descent shows the relaxed SVM of Theorem 6 depends on the ratio of the step sizes.

    Heuristic: both norms grow by their step size per iteration, so ‖v‖/‖p‖ → c, and descent follows the softmin of the
    margins plus c slack_i, where slack_i is the excess of v̄_mm's output on input i over the label margin. Evidence: let
    R be the norm of v or p, and the deviation the distance of its direction from the limit. On generated data
    R·deviation grows by a factor below 2 from R to 4R, at the latest at step 30,720 (this is claimed); on Figure 3(b)
    the deviation from p(c) at step 8000 is 3.4e-4 at c = 1/2, where p_mm and p_relax are both 0.099 away.

    Selection is needed: where p_relax gives α and another token of an input the same logit, normalized steps keep
    crossing this tie, after each crossing the gradient of this input dominates, and in an example, which is one of the
    tests, the head converges to a direction 0.21 away from v̄_mm. And the conjecture is about the end of a run: *which*
    tokens are selected depends on the start. On Figure 3(b) from the paper's start with η_v = 0.02, η_p = 0.1 descent
    selects other tokens (1 − cos(v, v_mm) = 0.3 at step 8000). The conjecture is not applicable to such runs.
    """
    setup = joint_setup(case, under_test, PROMPT_RATE, Form.LIMIT)
    yield from premises(joint_data(case, setup, under_test))
    parts: dict[str, Any] = {
        "descent": under_test[joint_descent],
        "weights": under_test[softmax_weights],
        "gradient": under_test[scaled_gradient],
        "by_head": under_test[head_gradient],
    }
    settings = descent_settings(case, setup.joint, setup.separator)
    run = settings.run(setup.joint, **parts)
    for claim in joint_run(setup.joint, under_test, run, settings):
        yield claim
        if claim.verdict is Verdict.FALSIFIED:
            return
    claims = _claims(setup, under_test, run)
    for _ in range(EXTENSIONS):
        if all(claim.verdict is not Verdict.FALSIFIED for claim in claims):
            break
        run = continue_run(settings, setup.joint, run, **parts)
        claims = _claims(setup, under_test, run)
    if any(claim.verdict is Verdict.FALSIFIED for claim in claims):
        # A drift of log R logits is allowed only in the longest run: in a short run this allowance would hide a
        # different limit.
        claims = _claims(setup, under_test, run, drifting=True)
    yield from claims


def _claims(
    setup: JointSetup, under_test: Implementation, run: JointTrajectory, *, drifting: bool = False
) -> list[Claim]:
    """Return the claims that head and prompt converge as fast as conjectured, from a quarter of the run to its end.

    If α is not selected throughout this part, the claim about the prompt is undecided.

    Args:
        setup: the data with the solutions v_mm, p_mm and p_relax.
        under_test: the implementation under test.
        run: the run of joint descent.
        drifting: whether to allow for a tight token without a dual, which falls behind other tight tokens by log R
            logits.
    """
    joint = setup.joint
    late = len(run.prompts) - 1
    early = late // 4
    worst = largest_nonoptimality(joint, run.prompts[early:])
    if not worst < 0.5:
        reason = f"α is not selected throughout: 1 − s_iα reaches {worst:.3g} after step {early}"
        return [undecided_claim(PROMPT_RATE, reason, Form.LIMIT)]
    heads, prompts = (np.linalg.norm(x[[early, late]], axis=1) for x in (run.heads, run.prompts))
    # The norms of v and p grow linearly but do not begin at 0, so their ratio differs from its limit by O(1/R), and so
    # would p(c), by as much as the claim allows. The ratio of the norms' growth has no such error.
    ratio = float((heads[1] - heads[0]) / (prompts[1] - prompts[0])) if prompts[1] > prompts[0] else math.nan
    if not 0 < ratio < math.inf:
        return [undecided_claim(PROMPT_RATE, "the norms do not both grow", Form.LIMIT)]
    unit = joint.longest_row
    size = float(np.max(np.linalg.norm(joint.chosen_tokens, axis=-1)))
    target = under_test[scheduled_direction](joint, ratio)
    # Besides the drift of log R logits, one logit is allowed for changes of the bounded part of the offset.
    logits = 1 + math.log(prompts[1] / prompts[0])
    drift = logits * _longest_logit(joint, run.prompts[late], target) if drifting else 0.0
    return [
        _rate(PROMPT_RATE, run.prompts[[early, late]], target, unit, drift),
        _rate(HEAD_RATE, run.heads[[early, late]], joint.svm.direction, size),
    ]


def _longest_logit(joint: Joint, p: Float64[np.ndarray, "d"], target: Float64[np.ndarray, "d"]) -> float:
    """Return the longest offset of p, orthogonal to ``target``, that may be needed to part tight tokens by one logit.

    An input's tight tokens are those with the smallest margin in the limit. The logit of a tight token without a dual
    falls behind by log R, since its weight falls like 1/R; if two tokens hardly differ, this requires a long offset.
    The logit of a token that is not tight falls behind in proportion to R, so the tokens that are less than 2 log R
    behind are the tight ones.
    """
    margins = joint.rows @ p
    leading = np.argmin(np.where(joint.others, margins, np.inf), axis=1)
    inputs = np.arange(len(leading))
    excess = margins - margins[inputs, leading][:, None]
    tight = joint.others & (excess <= 2 * math.log1p(float(np.linalg.norm(p)) * joint.longest_row))
    differences = joint.rows - joint.rows[inputs, leading][:, None]
    across = np.linalg.norm(differences - (differences @ target)[..., None] * target, axis=-1)
    distinct = tight & (across > 2.0**-40 * joint.longest_row)
    return float(1 / across[distinct].min()) if distinct.any() else 0.0


def _rate(
    name: str, points: Float64[np.ndarray, "2 d"], target: Float64[np.ndarray, "d"], unit: float, drift: float = 0.0
) -> Claim:
    """Claim that norm·deviation at the end is at most GROWTH times the larger of its earlier value and 1/``unit``.

    The deviation is the distance of the direction from ``target``. The claim also holds if the later value exceeds the
    earlier one by at most ``drift``. An offset of 1/``unit`` changes a logit of a prompt, or an output of a head, by
    one at most.
    """
    norms = np.linalg.norm(points, axis=1)
    offsets = np.linalg.norm(points - norms[:, None] * target, axis=1)
    return at_least(
        name,
        Form.LIMIT,
        max(GROWTH * max(float(offsets[0]), 1.0 / unit), float(offsets[0]) + drift),
        float(offsets[1]),
        rounding=0.0,
        why=JOINT_DESCENT,
        points="iterate",
    )
