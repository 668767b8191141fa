"""Gradient descent on head and prompt together, as in Figure 3, accurate also where the softmax is saturated.

The gradient in v is computed with |ℓ'| in logarithms, and the gradient in p by
:func:`reference_attention.risk.scaled_gradient` with the scores of the current head. So neither gradient cancels or
underflows.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Figure 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention import risk as reference
from reference_attention.loss import Array, Loss
from reference_attention.losses import loss_named
from reference_attention.risk import ScaledGradient

Gradient = Callable[[Array, Array, Loss, Array], ScaledGradient]
Weights = Callable[[Array, Array], Array]
HeadGradient = Callable[[Array, Array, Array], ScaledGradient]


@dataclass(frozen=True, eq=False)
class JointTrajectory:
    """The iterates of head and prompt of a joint descent.

    Attributes:
        heads: v(0), …, v(steps), shape (steps+1, d).
        prompts: p(0), …, p(steps), shape (steps+1, k).
    """

    heads: Float64[np.ndarray, "s d"]
    prompts: Float64[np.ndarray, "s k"]


def head_gradient(
    tokens: Float64[np.ndarray, "n T d"], weights: Float64[np.ndarray, "n T"], v: Float64[np.ndarray, "d"]
) -> ScaledGradient:
    """Return ∇_v L as a log scale and a direction, for the logistic loss.

    With the softmax weights s_it and the signed tokens z_it = Y_i x_it, let a_i = Σ_t s_it z_it be the attended tokens;
    then ∇_v L = −(1/n) Σ_i |ℓ'(v·a_i)| a_i.
    """
    features = np.sum(weights[..., None] * tokens, axis=1)
    slopes = loss_named("logistic").log_slope(features @ v)
    scale = float(np.max(slopes))
    direction = -np.sum(np.exp(slopes - scale)[:, None] * features, axis=0) / len(features)
    return ScaledGradient(np.float64(scale), direction)


def joint_descent(
    tokens: Float64[np.ndarray, "n T d"],
    keys: Float64[np.ndarray, "n T k"],
    head: Float64[np.ndarray, "d"],
    prompt: Float64[np.ndarray, "k"],
    *,
    steps: int,
    head_step: float,
    prompt_step: float,
    normalized: bool = True,
    weights: Weights = reference.softmax_weights,
    gradient: Gradient = reference.scaled_gradient,
    by_head: HeadGradient = head_gradient,
) -> JointTrajectory:
    """Run the simultaneous descent v ← v − η_v ∇_v L, p ← p − η_p ∇_p L with the logistic loss.

    Args:
        tokens: signed tokens Y_i x_it, (n, T, d).
        keys: the keys k_it, (n, T, k).
        head: the first head v(0), (d,).
        prompt: the first prompt p(0), (k,).
        steps: number of steps.
        head_step: the step size η_v of the head.
        prompt_step: the step size η_p of the prompt.
        normalized: whether each gradient is divided by its own norm, as in Figure 3, where both steps have length 0.1.
        weights: the function (keys, p) → softmax weights under test.
        gradient: the function (keys, scores, loss, p) → ∇_p L under test, with the scores Y_i x_it·v.
        by_head: the function (signed tokens, weights, v) → ∇_v L under test.
    """
    loss = loss_named("logistic")
    heads = np.empty((steps + 1, head.size))
    prompts = np.empty((steps + 1, prompt.size))
    heads[0], prompts[0] = head, prompt
    for k in range(steps):
        v, p = heads[k], prompts[k]
        scores = tokens @ v
        by_v = by_head(tokens, weights(keys, p), v)
        by_p = gradient(keys, scores, loss, p)
        heads[k + 1] = v - _step(by_v, head_step, normalized)
        prompts[k + 1] = p - _step(by_p, prompt_step, normalized)
    return JointTrajectory(heads, prompts)


def _step(by: ScaledGradient, size: float, normalized: bool) -> Float64[np.ndarray, "d"]:
    """Return ``size`` times the gradient ``by``, divided by its norm if ``normalized``; 0 if the gradient is 0."""
    norm = float(np.linalg.norm(by.direction))
    if norm == 0:
        return np.zeros_like(by.direction)
    if normalized:
        return np.asarray(by.direction * (size / norm))
    return np.asarray(by.direction * (size * math.exp(float(by.log_scale))))
