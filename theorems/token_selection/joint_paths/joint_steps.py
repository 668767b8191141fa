"""The premises of a run of joint descent: its start, and that head and prompt take a normalized step at every iterate.

The loop under test is given the functions for the softmax, for the gradient in the prompt (with the scores Y_i x_it·v
of the current head v) and for the gradient in the head. The steps of the run are compared with these gradients at the
run's own iterates, and the gradient in the head is compared with its formula.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Figure 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.joint_run import DescentSettings
from reference_attention.losses import loss_named
from reference_attention.paths.joint_risk import Joint
from reference_attention.risk import ScaledGradient, scaled_gradient, softmax_weights
from reference_attention.training.joint_descent import JointTrajectory, head_gradient
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, NotANumber, at_least
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.rounding.descent_steps import starts_claim, steps_claim

LOOKED_AT = 40
"""The largest number of iterates at which the step is checked, spread over the run."""


STARTS_AT_HEAD = premise("joint-run-starts-at-its-head")
STARTS_AT_PROMPT = premise("joint-run-starts-at-its-prompt")
HEAD_GRADIENT = premise("head-gradient")
HEAD_STEP = premise("head-iterate-is-a-step")
PROMPT_STEP = premise("prompt-iterate-is-a-step")
JOINT_RUN = (STARTS_AT_HEAD, STARTS_AT_PROMPT, HEAD_GRADIENT, HEAD_STEP, PROMPT_STEP)
"""The claims that :func:`joint_run` makes."""


def joint_run(
    joint: Joint, under_test: Implementation, run: JointTrajectory, settings: DescentSettings
) -> Iterator[Claim]:
    """Yield the claims that the run starts at the requested head and prompt, and takes normalized steps.

    v(t+1) = v(t) − η_v ∇_v L/‖∇_v L‖ and p(t+1) = p(t) − η_p ∇_p L/‖∇_p L‖, with both gradients at (v(t), p(t)) and the
    step lengths η_v, η_p of the settings.
    """
    yield starts_claim(STARTS_AT_HEAD, run.heads, settings.head, settings.steps)
    yield starts_claim(STARTS_AT_PROMPT, run.prompts, settings.prompt, settings.steps)
    if run.heads.shape[0] != settings.steps + 1 or run.prompts.shape[0] != settings.steps + 1:
        return
    if not (np.isfinite(run.heads).all() and np.isfinite(run.prompts).all()):
        raise NotANumber(HEAD_STEP, "an iterate of joint descent is not finite", Form.EXACT)
    at = np.unique(np.linspace(0, settings.steps - 1, LOOKED_AT).astype(int))
    loss = loss_named("logistic")
    weights = [under_test[softmax_weights](joint.keys, run.prompts[t]) for t in at]
    by_head = [under_test[head_gradient](joint.tokens, s, run.heads[t]) for t, s in zip(at, weights, strict=True)]
    by_prompt = [under_test[scaled_gradient](joint.keys, joint.tokens @ run.heads[t], loss, run.prompts[t]) for t in at]
    yield _formula_claim(joint, np.array(weights), run.heads[at], by_head)
    for name, points, parts, step in (
        (HEAD_STEP, run.heads, by_head, settings.head_step),
        (PROMPT_STEP, run.prompts, by_prompt, settings.prompt_step),
    ):
        gradient, scale = np.array([x.direction for x in parts]), np.array([float(x.log_scale) for x in parts])
        yield steps_claim(
            name,
            points[at],
            points[at + 1],
            exact(gradient),
            np.where(np.isfinite(scale), scale, 0.0),
            math.log(step),
            normalized=True,
        )


def _formula_claim(
    joint: Joint, weights: Float64[np.ndarray, "m n T"], heads: Float64[np.ndarray, "m d"], theirs: list[ScaledGradient]
) -> Claim:
    """Return the claim ∇_v L = −(1/n) Σ_i |ℓ'(v·x_i^p)| x_i^p, x_i^p = Σ_t s_it Y_i x_it, in units of the gradient."""
    features: Any = np.einsum("mnt,ntd->mnd", exact(weights), exact(joint.tokens))
    outputs = np.vecdot(features, exact(heads)[:, None])
    scale = np.array([float(x.log_scale) for x in theirs])
    slopes = np.exp(-np.logaddexp(0.0, outputs) - scale[:, None])
    right = -np.sum(slopes[..., None] * features, axis=1) / joint.tokens.shape[0]
    reported = np.array([x.direction for x in theirs])
    # The rounding error is doubled, because the implementation may use another formula.
    gap = np.abs(right.widen(right.error) - reported)
    size = float(np.abs(joint.tokens).max())
    return at_least(HEAD_GRADIENT, Form.EXACT, 0.0, gap, scale=size or 1.0, points="entry")
