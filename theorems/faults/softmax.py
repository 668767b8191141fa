"""Attention with another function in place of the softmax; weights, risk and gradient agree with each other.

Each function that maps logits to weights comes with the transpose of its Jacobian. So the gradient of a wrong softmax
is the right gradient of a wrong risk, and statements catch the wrong softmax, not an inconsistent gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from array_api_compat import array_namespace

from reference_attention import risk as reference
from reference_attention.loss import Array, Loss
from reference_attention.risk import (
    ScaledGradient,
    log_excess_risk,
    risk,
    scaled_gradient,
    signed_logsumexp,
    softmax_weights,
)
from theorems.core.implementation import REFERENCE, Implementation


def without_scale(direction: Array) -> ScaledGradient:
    """Return a gradient of scale 1, that is, of the logarithm 0."""
    xp = array_namespace(direction)
    return ScaledGradient(xp.zeros_like(direction[..., 0]), direction)


def covariance(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    """Return Jᵀγ, with entries s_t (γ_t − γᵀs), for the Jacobian J of the softmax with weights s, and scores γ."""
    xp = array_namespace(weights)
    return weights * (scores - xp.sum(weights * scores, axis=-1, keepdims=True))


def diagonal(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    """Return Jᵀγ for the Jacobian J = diag(s) − s sᵀ of the softmax reduced to its diagonal."""
    return weights * (1 - weights) * scores


def detached_normaliser(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    """Return Jᵀγ for J = diag(s), the Jacobian of a softmax whose denominator is taken as constant."""
    return weights * scores


def softmax_of(logits: Array) -> Array:
    """Return the softmax of logits by the usual formula, after subtracting the largest logit."""
    xp = array_namespace(logits)
    shifted = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return shifted / xp.sum(shifted, axis=-1, keepdims=True)


def as_it_is(logits: Array, size: float) -> Array:
    """Return the right softmax weights, by the usual formula; ``size`` is not used."""
    return softmax_of(logits)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The reference attention on changed keys and scores; a call with a size returns the faulty implementation.

    The SVM and the statement get the original data. With size 0 the result agrees with the reference up to the last
    digits, so a small fault is not caught merely because it is rounded differently.

    Attributes:
        keys_to: the function (keys, p, size) → (changed keys, prompts); the keys may have more tokens and dimensions,
            (*b, n, T', d'), the prompts more dimensions, (*b, d').
        scores_to: the function (scores, size) → scores of all T' tokens.
        size: how wrong the attention is.
    """

    keys_to: Callable[[Array, Array, float], tuple[Array, Array]] | None = None
    scores_to: Callable[[Array, float], Array] | None = None
    size: float = 0.0

    def _keys(self, keys: Array, p: Array) -> tuple[Array, Array]:
        return (keys, p) if self.keys_to is None else self.keys_to(keys, p, self.size)

    def _scores(self, scores: Array) -> Array:
        return scores if self.scores_to is None else self.scores_to(scores, self.size)

    def weights(self, keys: Array, p: Array) -> Array:
        """Return the weights s of the original T tokens, (*b, n, T)."""
        return reference.softmax_weights(*self._keys(keys, p))[..., : keys.shape[-2]]

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Return the risk L(p) of the wrong attention, (*b,)."""
        other_keys, prompt = self._keys(keys, p)
        return reference.risk(other_keys, self._scores(scores), loss, prompt)

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return ∇L(p) with respect to the original d coordinates of p, (*b, d)."""
        other_keys, prompt = self._keys(keys, p)
        gradient = reference.scaled_gradient(other_keys, self._scores(scores), loss, prompt)
        return ScaledGradient(gradient.log_scale, gradient.direction[..., : p.shape[-1]])

    def log_excess(self, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        """Return the sign of L(p) − L_α and the logarithm of its absolute value."""
        other_keys, prompt = self._keys(keys, p)
        return reference.log_excess_risk(other_keys, self._scores(scores), loss, prompt, alpha)

    def __call__(self, size: float) -> Implementation:
        """Return the reference with this attention, of the given size, in place of softmax, risk and gradient."""
        attention = replace(self, size=size)
        replaced: dict[Callable[..., object], Callable[..., object]] = {
            softmax_weights: attention.weights,
            risk: attention.risk,
            scaled_gradient: attention.gradient,
            log_excess_risk: attention.log_excess,
        }
        return REFERENCE.replace("", replaced)


@dataclass(frozen=True)
class Normalised(Attention):
    """Attention with another function from logits to weights in place of the softmax.

    Attributes:
        weights_of: the function (logits, size) → weights s.
        pulled_back: the function (logits, weights, scores γ, size) → Jᵀγ, J the Jacobian of ``weights_of``.
        single: whether logits are computed in float32.
    """

    weights_of: Callable[[Array, float], Array]
    pulled_back: Callable[[Array, Array, Array, float], Array] = covariance
    single: bool = False

    def logits(self, keys: Array, p: Array) -> Array:
        """Return the logits K p, (*b, n, T)."""
        xp = array_namespace(keys, p)
        if self.single:
            keys, p = xp.astype(keys, xp.float32), xp.astype(p, xp.float32)
        return _logits(keys, p)

    def weights(self, keys: Array, p: Array) -> Array:
        """Return the attention weights s, (*b, n, T)."""
        xp = array_namespace(keys, p)
        return xp.astype(self.weights_of(self.logits(keys, p), self.size), xp.float64)

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Return the risk (1/n) Σ ℓ(γᵀs), (*b,)."""
        xp = array_namespace(keys)
        return xp.mean(loss.value(xp.sum(self.weights(keys, p) * scores, axis=-1)), axis=-1)

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return ∇L = (1/n) Σ ℓ'(γᵀs) Kᵀ Jᵀγ, a formula whose terms cancel where the softmax saturates."""
        xp = array_namespace(keys)
        s = self.weights(keys, p)
        slope = loss.derivative(xp.sum(s * scores, axis=-1))[..., None]
        coefficients = slope * self.pulled_back(self.logits(keys, p), s, scores, self.size) / keys.shape[-3]
        return without_scale(xp.sum(xp.sum(coefficients[..., None] * keys, axis=-2), axis=-2))

    def log_excess(self, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        """Return sign of L(p) − L_α and logarithm of its absolute value, from the weights s without cancellation."""
        xp = array_namespace(keys, scores, p)
        s = self.weights(keys, p)
        scores = xp.broadcast_to(scores, s.shape)
        chosen = xp.take_along_axis(scores, xp.broadcast_to(alpha, s.shape[:-1])[..., None], axis=-1)
        terms = s * (chosen - scores)
        size = xp.abs(terms)
        logs = xp.where(size > 0, xp.log(xp.where(size > 0, size, xp.ones_like(size))), -math.inf * xp.ones_like(size))
        sign, logs = signed_logsumexp(xp.sign(terms), logs)
        sign, logs = signed_logsumexp(*loss.log_excess(chosen[..., 0], sign, logs))
        return sign, logs - math.log(keys.shape[-3])


def on_keys(change: Callable[[Array, float], Array]) -> Attention:
    """Return the attention, right in itself, that computes with the keys ``change(keys, size)``."""
    return Attention(keys_to=partial(_change_keys, change))


def _change_keys(change: Callable[[Array, float], Array], keys: Array, p: Array, size: float) -> tuple[Array, Array]:
    return change(keys, size), p


def on_scores(change: Callable[[Array, float], Array]) -> Callable[[float], Implementation]:
    """Return the function size → implementation with scores ``change(scores, size)`` in risk and gradient alone."""
    return partial(_without_weights, Attention(scores_to=change))


def _without_weights(attention: Attention, size: float) -> Implementation:
    replaced = attention(size).replaced
    return REFERENCE.replace("", {f: wrong for f, wrong in replaced.items() if f is not softmax_weights})


def shifted(shift: Callable[[Array, float], Array]) -> Attention:
    """Return attention softmax(K p + δ), δ = ``shift``(logits, size), (*b, n, T), taken as constant in its gradient."""
    return Attention(keys_to=partial(_shift, shift))


def _shift(shift: Callable[[Array, float], Array], keys: Array, p: Array, size: float) -> tuple[Array, Array]:
    return _add_coordinate(keys, p, shift(_logits(keys, p), size))


def with_sink(sink: Callable[[Array, float], Array]) -> Attention:
    """Return the attention with an additional token of score 0, whose logit is ``sink``(logits, size), (*b, n, 1)."""
    return Attention(keys_to=partial(_add_sink, sink), scores_to=_add_score)


def _add_sink(sink: Callable[[Array, float], Array], keys: Array, p: Array, size: float) -> tuple[Array, Array]:
    xp, logits = array_namespace(keys, p), _logits(keys, p)
    longer, prompt = _add_coordinate(keys, p, xp.zeros_like(logits))
    token = xp.concat([xp.zeros_like(longer[..., :1, :-1]), sink(logits, size)[..., None]], axis=-1)
    return xp.concat([longer, token], axis=-2), prompt


def _add_score(scores: Array, size: float) -> Array:
    xp = array_namespace(scores)
    return xp.concat([scores, xp.zeros_like(scores[..., :1])], axis=-1)


def _add_coordinate(keys: Array, p: Array, delta: Array) -> tuple[Array, Array]:
    """Return keys with the additional coordinate δ, (*b, n, T, d + 1), and prompts with a 1 there, (*b, d + 1)."""
    xp = array_namespace(keys, p)
    full = xp.broadcast_to(keys, (*delta.shape, keys.shape[-1]))
    return xp.concat([full, delta[..., None]], axis=-1), xp.concat([p, xp.ones_like(p[..., :1])], axis=-1)


def _logits(keys: Array, p: Array) -> Array:
    """Return the logits K p, (*b, n, T)."""
    return array_namespace(keys, p).sum(keys * p[..., None, None, :], axis=-1)
