"""Second derivatives of the joint risk and of the excess risk, for Newton's method.

The notation is that of :mod:`.joint_risk` and :func:`.joint_risk.joint_gradient` (E_i, s_it, c_it, k̄_i, π_i, Γ). With
Λ = log L + rΓ, u_i = rΓ + E_i, G_i = ∇(−E_i) and the sigmoid function σ, ∇²Λ = Σ π_i σ(u_i) G_i G_iᵀ − ∇Λ ∇Λᵀ + Σ π_i
∇²(−E_i), where

    ∂²(−E_i)/∂w∂p = Σ_t s_it (z_iα − z_it) (k_it − k̄_i)ᵀ,
    ∂²(−E_i)/∂p² = Σ_t s_it c_it ((k_it − k̄_i)(k_it − k̄_i)ᵀ − Cov_i),

and Cov_i is the covariance of the keys of input i under the softmax. As for the gradient, everything is computed from
differences to the chosen token α. The logarithm of the excess risk L(v, p) − L_α(v) has the same derivatives in p, with
π_i = |ℓ'(u_i)| divided by the sum of the excesses of all inputs.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_risk import (
    Drops,
    Joint,
    exponents,
    head_drops,
    log_excess,
    log_losses,
    log_moves,
    log_slopes,
    radius,
)

Derivatives = tuple[float, Float64[np.ndarray, "m"], Float64[np.ndarray, "m m"]]
"""The value, the gradient and the Hessian of a function of m variables."""


def joint_curvature(
    joint: Joint, log_r: float, w: Float64[np.ndarray, "d"], p: Float64[np.ndarray, "k"]
) -> Derivatives:
    """Return log L + rΓ with gradient and Hessian in (w, p), m = d + k, for the head r v̄_mm + w and the prompt p.

    The value and the gradient are those of :func:`.joint_risk.joint_gradient`.
    """
    logs = joint.log_weights(p)
    E = exponents(joint, log_r, w, logs)
    losses = log_losses(joint, log_r, E)
    top = losses.max()
    total = float(top + np.log(np.exp(losses - top).sum()))
    log_pi, half, keys, other_weights, by_p, turns, second = _prompt_part(
        joint, log_r, head_drops(joint, log_r, w), logs, E, total
    )
    pi, d = np.exp(log_pi), len(w)
    features = joint.chosen_tokens - (other_weights[:, None] @ joint.sides)[:, 0]
    gradient = np.concatenate([-pi @ features, by_p])
    tall = np.concatenate([-np.exp(half)[:, None] * features, turns], axis=1)
    curvature = tall.T @ tall - np.outer(gradient, gradient)
    cross = (joint.sides * (other_weights * pi[:, None])[..., None]).reshape(-1, d).T @ keys.reshape(-1, keys.shape[-1])
    curvature[:d, d:] += cross
    curvature[d:, :d] += cross.T
    curvature[d:, d:] += second
    return total - math.log(len(E)), gradient, curvature


def excess_curvature(
    joint: Joint, log_r: float, w: Float64[np.ndarray, "d"], drops: Drops, p: Float64[np.ndarray, "k"]
) -> Derivatives:
    """Return log(L(v, p) − L_α(v)) + rΓ with gradient and Hessian in p, m = k, for the head v = r v̄_mm + w.

    The value and the gradient are those of :func:`.joint_risk.excess_gradient`. If the excess is not positive, the
    value is +inf and the derivatives are zero. ``drops`` is the result of :func:`.joint_risk.head_drops` for w.
    """
    logs = joint.log_weights(p)
    E = exponents(joint, log_r, w, logs)
    sign, total = log_excess(joint, log_r, w, logs, E, drops)
    if sign <= 0:
        return math.inf, np.zeros(p.size), np.zeros((p.size, p.size))
    _, _, _, _, by_p, turns, second = _prompt_part(joint, log_r, drops, logs, E, float(total))
    return float(total) - math.log(len(E)), by_p, second + turns.T @ turns - np.outer(by_p, by_p)


def _prompt_part(
    joint: Joint,
    log_r: float,
    drops: Drops,
    logs: Float64[np.ndarray, "n T"],
    E: Float64[np.ndarray, "n"],
    total: float,
) -> tuple[
    Float64[np.ndarray, "n"],
    Float64[np.ndarray, "n"],
    Float64[np.ndarray, "n T k"],
    Float64[np.ndarray, "n T"],
    Float64[np.ndarray, "k"],
    Float64[np.ndarray, "n k"],
    Float64[np.ndarray, "k k"],
]:
    """Return the terms that :func:`joint_curvature` and :func:`excess_curvature` share.

    In the notation of the module, these are log π_i, log(π_i σ(u_i))/2, k_it − k̄_i, the softmax weights of tokens
    other than α, Σ π_i ∇_p(−E_i), √(π_i σ(u_i)) ∇_p(−E_i) and Σ π_i ∂²(−E_i)/∂p², where π_i = |ℓ'(u_i)| e^{rΓ − total}.
    """
    log_pi = log_slopes(joint, log_r, E) - total
    half = (log_pi - np.logaddexp(0.0, -(radius(log_r) * joint.svm.margin + E))) / 2
    weights = np.exp(logs)
    other_weights = weights * joint.others
    mean = -(other_weights[:, None] @ joint.rows)[:, 0]
    keys = -joint.rows - mean[:, None]
    sign, size = log_moves(drops, logs)
    moves = sign * np.exp(np.clip(size + log_pi[:, None], -745.0, 300.0))
    halves = sign * np.exp(np.clip(size + half[:, None], -745.0, 300.0))
    share = moves - weights * moves.sum(axis=1, keepdims=True)
    flat = keys.reshape(-1, keys.shape[-1])
    second = (flat * share.reshape(-1, 1)).T @ flat
    return log_pi, half, keys, other_weights, moves.reshape(-1) @ flat, (halves[:, None] @ keys)[:, 0], second
