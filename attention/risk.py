"""Risk and gradient of softmax attention, without cancellation, on NumPy arrays and torch tensors alike.

Naive float64 is not merely imprecise here: once the softmax saturates, ``γ − γᵀs`` cancels and gradient descent
turns into a different basin. Everything is therefore written in differences to the currently selected token and
in logarithms, so that norms of 1e6 (softmax weights of e^{−10⁶}) are routine.

Shapes: leading batch axes ``*b`` broadcast; keys (*b, n, T, d), scores (*b, n, T), p (*b, d).

References: *Max-Margin Token Selection in Attention Mechanism*, (ERM), Lemma 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from attention.losses import Array, Loss


@dataclass(frozen=True)
class ScaledGradient:
    """∇L = e^{log_scale} · direction, with ``direction`` of order one wherever ∇L is not zero.

    Attributes:
        log_scale: shape (*b,); −inf where the gradient is exactly zero.
        direction: shape (*b, d).
    """

    log_scale: Array
    direction: Array

    @property
    def log_norm(self) -> Array:
        """log ‖∇L‖, shape (*b,)."""
        xp = array_namespace(self.direction)
        size = xp.sqrt(xp.sum(self.direction * self.direction, axis=-1))
        if xp is not array_namespace(np.empty(0)):
            return self.log_scale + xp.log(size)
        with np.errstate(divide="ignore"):
            return self.log_scale + np.log(size)


@dataclass(frozen=True)
class Selection:
    """The softmax weights relative to the token selected now (the largest logit).

    Attributes:
        token: (*b, n) integer, the selected token.
        key_differences: k_t − k_selected, (*b, n, T, d).
        log_weights: log s_t, (*b, n, T).
        others: (*b, n, T) boolean, true off the selected token.
    """

    token: Array
    key_differences: Array
    log_weights: Array
    others: Array


def select(keys: Array, p: Array) -> Selection:
    """Softmax weights of K p in logarithms; logits are differences to the selected token, never raw."""
    xp = array_namespace(keys, p)
    logits = xp.sum(keys * p[..., None, None, :], axis=-1)
    token = xp.argmax(logits, axis=-1)
    index = xp.broadcast_to(token[..., None, None], (*token.shape, 1, keys.shape[-1]))
    full = xp.broadcast_to(keys, (*logits.shape, keys.shape[-1]))
    differences = full - xp.take_along_axis(full, index, axis=-2)
    relative = xp.sum(differences * p[..., None, None, :], axis=-1)
    top = xp.max(relative, axis=-1, keepdims=True)
    log_total = top + xp.log(xp.sum(xp.exp(relative - top), axis=-1, keepdims=True))
    others = _positions(xp, relative) != token[..., None]
    return Selection(token, differences, relative - log_total, others)


def _positions(xp: Any, like: Array) -> Array:
    """0 … T−1 along the last axis, on the device of ``like``."""
    if hasattr(like, "new_tensor"):
        return xp.arange(like.shape[-1], device=like.device)
    return np.arange(like.shape[-1])


def softmax_weights(keys: Array, p: Array) -> Array:
    """s_i = softmax(K_i p), shape (*b, n, T)."""
    xp = array_namespace(keys, p)
    return xp.exp(select(keys, p).log_weights)


def predictions(keys: Array, scores: Array, p: Array) -> Array:
    """γ_iᵀ s_i, computed as γ_selected + Σ s_t (γ_t − γ_selected), shape (*b, n)."""
    xp = array_namespace(keys, scores, p)
    chosen = select(keys, p)
    scores = xp.broadcast_to(scores, chosen.log_weights.shape)
    best = xp.take_along_axis(scores, chosen.token[..., None], axis=-1)
    return best[..., 0] + xp.sum(xp.exp(chosen.log_weights) * (scores - best), axis=-1)


def risk(keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
    """L(p) = (1/n) Σ_i ℓ(γ_iᵀ s_i), shape (*b,)."""
    xp = array_namespace(keys, scores, p)
    return xp.mean(loss.value(predictions(keys, scores, p)), axis=-1)


def scaled_gradient(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """∇L(p) = (1/n) Σ_i ℓ'(γ_iᵀ s_i) Σ_t s_it (γ_it − γ_iᵀ s_i) k_it, as a log scale and a direction.

    With δ = difference to the selected token, Σ_t s_t (γ_t − γᵀs) k_t = E[δγ δk] − E[δγ] E[δk]: sums over the
    other tokens only. The largest term |ℓ'| s_t |δγ_t| is taken out as e^{log_scale}.
    """
    xp = array_namespace(keys, scores, p)
    chosen = select(keys, p)
    scores = xp.broadcast_to(scores, chosen.log_weights.shape)
    best = xp.take_along_axis(scores, chosen.token[..., None], axis=-1)
    differences = scores - best
    weights = xp.exp(chosen.log_weights)
    outputs = best[..., 0] + xp.sum(weights * differences, axis=-1)
    magnitude = xp.abs(differences)
    matters = chosen.others & (magnitude > 0)
    log_terms = (
        loss.log_slope(outputs)[..., None]
        - math.log(keys.shape[-3])
        + chosen.log_weights
        + xp.log(xp.where(matters, magnitude, xp.ones_like(magnitude)))
    )
    log_terms = xp.where(matters, log_terms, xp.full_like(log_terms, -math.inf))
    log_scale = xp.max(xp.reshape(log_terms, (*log_terms.shape[:-2], -1)), axis=-1)
    shift = xp.where(log_scale > -math.inf, log_scale, xp.zeros_like(log_scale))
    terms = xp.sign(differences) * xp.exp(log_terms - shift[..., None, None])
    mixing = xp.sum(terms, axis=-1)[..., None] * weights
    coefficients = xp.where(chosen.others, mixing - terms, xp.zeros_like(terms))
    direction = xp.sum(xp.sum(coefficients[..., None] * chosen.key_differences, axis=-2), axis=-2)
    return ScaledGradient(log_scale, direction)


def log_excess_risk(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
    """Sign and logarithm of L(p) − L_α, L_α = (1/n) Σ_i ℓ(γ_iα_i) the risk of selecting α exactly.

    Args:
        alpha: chosen tokens, (*b, n) integer.

    Returns:
        ``(sign, log |L(p) − L_α|)``, each of shape (*b,); exact to rounding where L(p) − L_α underflows.
    """
    xp = array_namespace(keys, scores, p)
    chosen = select(keys, p)
    shape = chosen.log_weights.shape
    scores = xp.broadcast_to(scores, shape)
    alpha = xp.broadcast_to(alpha, shape[:-1])
    reference = xp.take_along_axis(scores, alpha[..., None], axis=-1)
    gap = reference - scores
    size = xp.abs(gap)
    log_gap = xp.where(size > 0, xp.log(xp.where(size > 0, size, xp.ones_like(size))), xp.full_like(size, -math.inf))
    sign, log_size = signed_logsumexp(xp.sign(gap), chosen.log_weights + log_gap)
    sign, log_size = loss.log_excess(reference[..., 0], sign, log_size)
    sign, log_size = signed_logsumexp(sign, log_size)
    return sign, log_size - math.log(keys.shape[-3])


def signed_logsumexp(sign: Array, log_size: Array) -> tuple[Array, Array]:
    """Sign and logarithm of |Σ sign·e^{log_size}| over the last axis."""
    xp = array_namespace(sign, log_size)
    log_size = xp.where(sign == 0, xp.full_like(log_size, -math.inf), log_size)
    top = xp.max(log_size, axis=-1)
    shift = xp.where(top > -math.inf, top, xp.zeros_like(top))
    total = xp.sum(sign * xp.exp(log_size - shift[..., None]), axis=-1)
    size = xp.abs(total)
    nonzero = size > 0
    log_total = shift + xp.log(xp.where(nonzero, size, xp.ones_like(size)))
    return xp.sign(total), xp.where(nonzero, log_total, xp.full_like(log_total, -math.inf))
