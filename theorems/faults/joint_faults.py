"""Faults in the functions that compute or train head v and prompt p together.

The functions are the joint gradient, the search for the minimiser, joint descent, and, for Theorem 6, the direction
p(c) of the prompt and the critical ratio c*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.paths.joint_path import Schedule
from reference_attention.paths.joint_risk import Joint, joint_gradient, relative_log_risk
from reference_attention.paths.joint_search import JointMinimum, joint_minimiser
from reference_attention.paths.scheduled_direction import critical_ratio, scheduled_direction
from reference_attention.risk import ScaledGradient
from reference_attention.training.joint_descent import JointTrajectory, head_gradient, joint_descent
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.JOINT)
DESCENT = "conjecture-joint-descent"
JointPoint = tuple[float, Array, Array]


@FAULTS.plant(
    "head-offset-ignored",
    "the prompt's gradient is taken at the head r v̄_mm, without the head's offset",
    "theorem-5",
    joint_gradient,
)
def _ignore_offset(right: Callable[..., JointPoint], joint: Joint, log_r: float, w: Array, p: Array) -> JointPoint:
    value, by_w, _ = right(joint, log_r, w, p)
    return value, by_w, right(joint, log_r, np.zeros_like(w), p)[2]


@FAULTS.change(
    "head-pull-of-alpha", "the head's gradient is taken as if exactly α were selected", "theorem-5", joint_gradient
)
def _curve_head(point: JointPoint, joint: Joint, *arguments: Any) -> JointPoint:
    value, _, by_p = point
    return value, -joint.chosen_tokens.mean(axis=0), by_p


@FAULTS.change(
    "joint-risk-summed", "the logarithm of the sum over inputs in place of the mean", "theorem-5", joint_gradient
)
def _sum(point: JointPoint, joint: Joint, *arguments: Any) -> JointPoint:
    value, by_w, by_p = point
    return value + float(np.log(len(joint.tokens))), by_w, by_p


def _with_prompts(minimum: JointMinimum, prompts: Array) -> JointMinimum:
    return replace(minimum, path=replace(minimum.path, prompts=prompts))


@FAULTS.change("joint-path-unminimised", "the joint path ends at its start", "theorem-6", joint_minimiser)
def _first_start(minimum: JointMinimum, joint: Joint, schedule: Schedule, R: float, starts: Array) -> JointMinimum:
    return _with_prompts(minimum, starts[:1] * (R / np.linalg.norm(starts[0])))


@FAULTS.change(
    "path-picks-a-start",
    "the joint path ends at the start of least risk, without a descent",
    "theorem-6",
    joint_minimiser,
)
def _lowest_start(minimum: JointMinimum, joint: Joint, schedule: Schedule, R: float, starts: Array) -> JointMinimum:
    prompts = starts * (R / np.linalg.norm(starts, axis=1, keepdims=True))
    heads = np.zeros((len(starts), joint.tokens.shape[2]))
    risks = relative_log_risk(joint, schedule(R), heads, joint.log_weights(prompts))
    return _with_prompts(minimum, prompts[[int(np.argmin(risks))]])


@FAULTS.change("path-too-short", "the prompt has the norm R/2 in place of R", "theorem-6", joint_minimiser)
def _halve(minimum: JointMinimum, *arguments: Any) -> JointMinimum:
    return _with_prompts(minimum, minimum.path.prompts / 2)


@FAULTS.change("path-too-long", "the prompt has the norm 2R in place of R", "theorem-6", joint_minimiser)
def _double(minimum: JointMinimum, *arguments: Any) -> JointMinimum:
    return _with_prompts(minimum, minimum.path.prompts * 2)


@FAULTS.plant(
    "path-of-a-wrong-label",
    "the non-selected tokens of one input have the wrong sign",
    "theorem-6",
    joint_minimiser,
)
def _flip_first_label(right: Callable[..., JointMinimum], joint: Joint, *arguments: Any) -> JointMinimum:
    tokens = np.array(joint.tokens)
    tokens[0, joint.others[0]] *= -1.0
    tokens[0, joint.others[0]] += 2 * joint.chosen_tokens[0]
    return right(replace(joint, tokens=tokens), *arguments)


Step = Callable[[Array, Array, Array, Array, dict[str, Any]], tuple[Array, Array]]
"""A function that returns the next pair (v, p) from tokens, keys, v, p and the options of the run."""


def _run(
    step: Step, right: Any, tokens: Array, keys: Array, head: Array, prompt: Array, *, steps: int, **options: Any
) -> JointTrajectory:
    """Run joint descent with ``step`` in place of the right step."""
    heads, prompts = [np.array(head)], [np.array(prompt)]
    for _ in range(steps):
        v, p = step(tokens, keys, heads[-1], prompts[-1], options)
        heads.append(v)
        prompts.append(p)
    return JointTrajectory(np.array(heads), np.array(prompts))


def _step(name: str, says: str) -> Callable[[Step], Step]:
    """Return a decorator that plants joint descent whose step is the decorated function, see :data:`Step`."""
    return FAULTS.plant(name, says, DESCENT, joint_descent, through=_run)


def _right_step(tokens: Array, keys: Array, v: Array, p: Array, options: dict[str, Any]) -> tuple[Array, Array]:
    run = joint_descent(tokens, keys, v, p, steps=1, **options)
    return run.heads[1], run.prompts[1]


@_step("joint-steps-sequential", "the prompt's step is computed at the head's next iterate")
def _sequential(tokens: Array, keys: Array, v: Array, p: Array, options: dict[str, Any]) -> tuple[Array, Array]:
    head, _ = _right_step(tokens, keys, v, p, options)
    return head, _right_step(tokens, keys, head, p, options)[1]


@_step("joint-steps-not-normalized", "gradients are not divided by their norms")
def _not_normalized(tokens: Array, keys: Array, v: Array, p: Array, options: dict[str, Any]) -> tuple[Array, Array]:
    return _right_step(tokens, keys, v, p, {**options, "normalized": False})


@_step("joint-steps-normalized-together", "both gradients are divided by the norm of the whole gradient")
def _together(tokens: Array, keys: Array, v: Array, p: Array, options: dict[str, Any]) -> tuple[Array, Array]:
    """Divide both steps by √2, as if both gradients had the same norm and were divided by the whole gradient's norm."""
    head, prompt = _right_step(tokens, keys, v, p, options)
    return v + (head - v) / np.sqrt(2.0), p + (prompt - p) / np.sqrt(2.0)


@_step("joint-descent-label-flipped", "the last input is trained with the wrong label")
def _flip_last_label(tokens: Array, keys: Array, v: Array, p: Array, options: dict[str, Any]) -> tuple[Array, Array]:
    wrong = np.array(tokens)
    wrong[-1] *= -1.0
    return _right_step(wrong, keys, v, p, options)


@_step("joint-descent-head-stays", "the head is not trained")
def _keep_head(tokens: Array, keys: Array, v: Array, p: Array, options: dict[str, Any]) -> tuple[Array, Array]:
    return v, _right_step(tokens, keys, v, p, options)[1]


@FAULTS.plant("joint-descent-from-zero", "the prompt starts at zero", DESCENT, joint_descent)
def _from_zero(right: Any, tokens: Array, keys: Array, head: Array, prompt: Array, **options: Any) -> JointTrajectory:
    return joint_descent(tokens, keys, head, np.zeros_like(prompt), **options)


@FAULTS.plant("head-slope-squared", "|ℓ'|² in place of |ℓ'| in the head's gradient", DESCENT, head_gradient)
def _square_slope(right: Any, tokens: Array, weights: Array, v: Array) -> ScaledGradient:
    features = np.sum(weights[..., None] * tokens, axis=1)
    slopes = -2 * np.logaddexp(0.0, features @ v)
    scale = float(np.max(slopes))
    return ScaledGradient(np.float64(scale), -np.exp(slopes - scale) @ features / len(features))


@FAULTS.plant(
    "head-sees-argmax", "the head's gradient is computed as if the largest weight were 1", DESCENT, head_gradient
)
def _selected(right: Callable[..., ScaledGradient], tokens: Array, weights: Array, v: Array) -> ScaledGradient:
    return right(tokens, 1.0 * (weights == weights.max(axis=-1, keepdims=True)), v)


@FAULTS.change(
    "schedule-without-quadrant",
    "p(c) without the constraints (k_iα − k_it)·p ≥ 0 of the non-supports",
    "theorem-6",
    scheduled_direction,
)
def _without_quadrant(p: Array, joint: Joint, ratio: float) -> Array:
    """Drop (k_iα − k_it)·p ≥ 0: margins count as larger by ``ratio`` times the slack of their input's label margin."""
    rows, length = joint.rows[joint.others], 1.0
    excess = np.broadcast_to(joint.svm.slack[:, None], joint.others.shape)[joint.others] * ratio
    for _ in range(200):  # maximise a minimum of linear functions on the sphere, with ever shorter steps
        worst = rows[int(np.argmin(rows @ p + excess))]
        q = p + length * worst / np.linalg.norm(worst)
        q /= np.linalg.norm(q)
        if np.min(rows @ q + excess) > np.min(rows @ p + excess):
            p = q
        else:
            length *= 0.8
    return p


@FAULTS.plant("schedule-slack-squared", "p(c) computed with slack² in place of slack", "theorem-6", scheduled_direction)
def _square_slack(right: Callable[..., Array], joint: Joint, ratio: float) -> Array:
    return right(replace(joint, svm=replace(joint.svm, slack=joint.svm.slack**2)), ratio)


@FAULTS.plant("schedule-always-relaxed", "p_relax in place of p(c)", "theorem-6", scheduled_direction)
def _always_relaxed(right: Callable[..., Array], joint: Joint, ratio: float) -> Array:
    return right(joint, 1e6)


@FAULTS.change("critical-ratio-quartered", "c*/4 in place of the critical ratio c*", "theorem-6", critical_ratio)
def _quarter(ratio: float, *arguments: Any) -> float:
    return ratio / 4
