"""Faults in what moves head and prompt together: the joint gradient, the search for the minimiser, joint descent, and
p(c) with its critical ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.paths.joint import Joint, joint_gradient, relative_log_risk
from reference_attention.paths.joint_path import Schedule
from reference_attention.paths.joint_search import JointMinimum, joint_minimiser
from reference_attention.paths.scheduled_direction import critical_ratio, scheduled_direction
from reference_attention.risk import ScaledGradient
from reference_attention.training.joint_descent import JointTrajectory, head_gradient, joint_descent
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind


@dataclass(frozen=True)
class Replaced:
    """Size → the reference with one function replaced."""

    name: str
    by: Callable[..., Any]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", **{self.name: self.by})


def offset_ignored(joint: Joint, log_r: float, w: Array, p: Array) -> tuple[float, Array, Array]:
    """The prompt's pull is that of the head r v̄_mm; risk and pull of the head are right."""
    value, by_w, _ = joint_gradient(joint, log_r, w, p)
    return value, by_w, joint_gradient(joint, log_r, np.zeros_like(w), p)[2]


def curved_head(joint: Joint, log_r: float, w: Array, p: Array) -> tuple[float, Array, Array]:
    """The head's pull is taken at the features that α alone would have."""
    value, _, by_p = joint_gradient(joint, log_r, w, p)
    return value, -joint.chosen_tokens.mean(axis=0), by_p


def sum_not_mean(joint: Joint, log_r: float, w: Array, p: Array) -> tuple[float, Array, Array]:
    """The risk is a sum over the inputs; its logarithm has the same gradient."""
    value, by_w, by_p = joint_gradient(joint, log_r, w, p)
    return value + float(np.log(len(joint.tokens))), by_w, by_p


def first_start(joint: Joint, schedule: Schedule, R: float, starts: Array) -> JointMinimum:
    """The first start, at the radius asked for."""
    found = joint_minimiser(joint, schedule, R, starts)
    p = starts[0] * (R / np.linalg.norm(starts[0]))
    return replace(found, path=replace(found.path, prompts=p[None]))


def lowest_start(joint: Joint, schedule: Schedule, R: float, starts: Array) -> JointMinimum:
    """The lowest of the starts, at the radius asked for; no descent."""
    found = joint_minimiser(joint, schedule, R, starts)
    tried = starts * (R / np.linalg.norm(starts, axis=1, keepdims=True))
    heads = np.zeros((len(starts), joint.tokens.shape[2]))
    risks = relative_log_risk(joint, schedule(R), heads, joint.log_weights(tried))
    return replace(found, path=replace(found.path, prompts=tried[[int(np.argmin(risks))]]))


def prompt_too_short(joint: Joint, schedule: Schedule, R: float, starts: Array) -> JointMinimum:
    """The minimiser at R/2 reported for R."""
    found = joint_minimiser(joint, schedule, R, starts)
    return replace(found, path=replace(found.path, prompts=found.path.prompts / 2))


def prompt_too_long(joint: Joint, schedule: Schedule, R: float, starts: Array) -> JointMinimum:
    """The minimiser with twice its prompt."""
    minimum = joint_minimiser(joint, schedule, R, starts)
    return replace(minimum, path=replace(minimum.path, prompts=minimum.path.prompts * 2))


def first_label_flipped(joint: Joint, schedule: Schedule, R: float, starts: Array) -> JointMinimum:
    """The minimiser where the other tokens of input 0 count with the wrong label."""
    tokens = np.array(joint.tokens)
    tokens[0, joint.others[0]] *= -1.0
    tokens[0, joint.others[0]] += 2 * joint.chosen_tokens[0]
    return joint_minimiser(replace(joint, tokens=tokens), schedule, R, starts)


Step = Callable[[Array, Array, Array, Array, dict[str, Any]], tuple[Array, Array]]
"""(tokens, keys, v, p, what was asked) → the next pair."""


@dataclass(frozen=True)
class JointLoop:
    """Joint descent with another step. Called with a size it makes the fault."""

    step: Step

    def run(
        self, tokens: Array, keys: Array, head: Array, prompt: Array, *, steps: int, **asked: Any
    ) -> JointTrajectory:
        """As :func:`reference_attention.training.joint_descent.joint_descent`."""
        heads, prompts = [np.array(head)], [np.array(prompt)]
        for _ in range(steps):
            v, p = self.step(tokens, keys, heads[-1], prompts[-1], asked)
            heads.append(v)
            prompts.append(p)
        return JointTrajectory(np.array(heads), np.array(prompts))

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", joint_descent=self.run)


def _right(tokens: Array, keys: Array, v: Array, p: Array, asked: dict[str, Any]) -> tuple[Array, Array]:
    run = joint_descent(tokens, keys, v, p, steps=1, **asked)
    return run.heads[1], run.prompts[1]


def _sequential(tokens: Array, keys: Array, v: Array, p: Array, asked: dict[str, Any]) -> tuple[Array, Array]:
    head, _ = _right(tokens, keys, v, p, asked)
    return head, _right(tokens, keys, head, p, asked)[1]


def _not_normalized(tokens: Array, keys: Array, v: Array, p: Array, asked: dict[str, Any]) -> tuple[Array, Array]:
    return _right(tokens, keys, v, p, {**asked, "normalized": False})


def _together_normalized(tokens: Array, keys: Array, v: Array, p: Array, asked: dict[str, Any]) -> tuple[Array, Array]:
    """Both parts are divided by the norm of the whole gradient: neither step has its own length."""
    head, prompt = _right(tokens, keys, v, p, asked)
    return v + (head - v) / np.sqrt(2.0), p + (prompt - p) / np.sqrt(2.0)


def _label_flipped(tokens: Array, keys: Array, v: Array, p: Array, asked: dict[str, Any]) -> tuple[Array, Array]:
    wrong = np.array(tokens)
    wrong[-1] *= -1.0
    return _right(wrong, keys, v, p, asked)


def _head_stays(tokens: Array, keys: Array, v: Array, p: Array, asked: dict[str, Any]) -> tuple[Array, Array]:
    return v, _right(tokens, keys, v, p, asked)[1]


def from_zero(tokens: Array, keys: Array, head: Array, prompt: Array, **asked: Any) -> JointTrajectory:
    """The prompt starts at zero, whatever was asked for."""
    return joint_descent(tokens, keys, head, np.zeros_like(prompt), **asked)


def squared_slope(tokens: Array, weights: Array, v: Array) -> ScaledGradient:
    """Inputs weighed by |ℓ'|² in the gradient of the head."""
    features = np.sum(weights[..., None] * tokens, axis=1)
    slopes = -2 * np.logaddexp(0.0, features @ v)
    scale = float(np.max(slopes))
    return ScaledGradient(np.float64(scale), -np.exp(slopes - scale) @ features / len(features))


def selected_features(tokens: Array, weights: Array, v: Array) -> ScaledGradient:
    """The gradient of the head at the tokens of the largest weight."""
    return head_gradient(tokens, 1.0 * (weights == weights.max(axis=-1, keepdims=True)), v)


def without_quadrant(joint: Joint, ratio: float) -> Array:
    """p(c) without (k_iα − k_it)·p ≥ 0 for the non-supports: what the slack allows, they may lose."""
    rows = joint.rows[joint.others]
    excess = np.broadcast_to(joint.svm.slack[:, None], joint.others.shape)[joint.others] * ratio
    p, length = scheduled_direction(joint, ratio), 1.0
    for _ in range(200):  # ascent on the least of concave functions, with ever shorter steps
        worst = rows[int(np.argmin(rows @ p + excess))]
        q = p + length * worst / np.linalg.norm(worst)
        q /= np.linalg.norm(q)
        if np.min(rows @ q + excess) > np.min(rows @ p + excess):
            p = q
        else:
            length *= 0.8
    return p


def slack_squared(joint: Joint, ratio: float) -> Array:
    """p(c) with c slack² for c slack."""
    return scheduled_direction(replace(joint, svm=replace(joint.svm, slack=joint.svm.slack**2)), ratio)


def always_relaxed_direction(joint: Joint, ratio: float) -> Array:
    """The direction for c = ∞, whatever c is."""
    return scheduled_direction(joint, 1e6)


def quarter_ratio(joint: Joint, relaxed: Any) -> float:
    """c*/4."""
    return critical_ratio(joint, relaxed) / 4


def _fault(name: str, says: str, by: str, replaced: str, function: Callable[..., Any]) -> Fault:
    return Fault(name, Kind.JOINT, says, by, Replaced(replaced, function))


def _loop(name: str, says: str, step: Step) -> Fault:
    return Fault(name, Kind.JOINT, says, "conjecture-joint-descent", JointLoop(step))


RUN = "conjecture-joint-descent"

JOINT_FAULTS = (
    _fault(
        "head-offset-ignored",
        "the prompt's pull is that of the head r v̄_mm alone",
        "theorem-5",
        "joint_gradient",
        offset_ignored,
    ),
    _fault("head-pull-of-alpha", "the head's pull is that of α selected", "theorem-5", "joint_gradient", curved_head),
    _fault("joint-risk-summed", "log Σ for log mean", "theorem-5", "joint_gradient", sum_not_mean),
    _fault("path-unminimised", "the joint path ends at its start", "theorem-6", "joint_minimiser", first_start),
    _fault("path-picks-a-start", "the lowest start, no descent", "theorem-6", "joint_minimiser", lowest_start),
    _fault("path-too-short", "‖p‖ = R/2 for ‖p‖ = R", "theorem-6", "joint_minimiser", prompt_too_short),
    _fault("path-too-long", "‖p‖ = 2R for ‖p‖ = R", "theorem-6", "joint_minimiser", prompt_too_long),
    _fault(
        "path-of-a-wrong-label",
        "the other tokens of one input count with the wrong sign",
        "theorem-6",
        "joint_minimiser",
        first_label_flipped,
    ),
    _loop("joint-steps-sequential", "the prompt steps at the head's next iterate", _sequential),
    _loop("joint-steps-not-normalized", "gradients are not divided by their norms", _not_normalized),
    _loop("joint-steps-normalized-together", "one norm for both parts", _together_normalized),
    _loop("joint-descent-label-flipped", "the last input is trained with the wrong label", _label_flipped),
    _loop("joint-descent-head-stays", "the head is not trained", _head_stays),
    _fault("joint-descent-from-zero", "the prompt starts at zero", RUN, "joint_descent", from_zero),
    _fault("head-slope-squared", "|ℓ'|² for |ℓ'| in the head's gradient", RUN, "head_gradient", squared_slope),
    _fault("head-sees-argmax", "the head's gradient at the selected tokens", RUN, "head_gradient", selected_features),
    _fault(
        "schedule-without-quadrant",
        "p(c) without the constraints ≥ 0 of the non-supports",
        "theorem-6",
        "scheduled_direction",
        without_quadrant,
    ),
    _fault("schedule-slack-squared", "p(c) with slack²", "theorem-6", "scheduled_direction", slack_squared),
    _fault(
        "schedule-always-relaxed", "p_relax for every c", "theorem-6", "scheduled_direction", always_relaxed_direction
    ),
    _fault("critical-ratio-quartered", "c*/4 for c*", "theorem-6", "critical_ratio", quarter_ratio),
)
"""Faults in what moves head and prompt together."""
