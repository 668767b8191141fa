"""Attention with another function in place of the softmax, consistently: weights, risk, excess and gradient agree.

A normaliser is a map from logits to weights with the transpose of its Jacobian, so the gradient of a wrong softmax is
the right gradient of a wrong risk, and the fault is caught for what it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

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
    """Return a gradient that was computed without a scale of its own, with log scale 0."""
    xp = array_namespace(direction)
    return ScaledGradient(xp.zeros_like(direction[..., 0]), direction)


def covariance(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    """Return Jᵀγ of the softmax, s_t (γ_t − γᵀs)."""
    xp = array_namespace(weights)
    return weights * (scores - xp.sum(weights * scores, axis=-1, keepdims=True))


def diagonal(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    """Return Jᵀγ with the term −s sᵀ of the Jacobian cut to its diagonal."""
    return weights * (1 - weights) * scores


def detached_normaliser(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    """Return Jᵀγ with the normaliser taken for a constant: J = diag(s)."""
    return weights * scores


def softmax_of(logits: Array) -> Array:
    """Return the softmax of logits by the textbook formula."""
    xp = array_namespace(logits)
    shifted = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return shifted / xp.sum(shifted, axis=-1, keepdims=True)


def as_it_is(logits: Array, size: float) -> Array:
    """Return right weights, by the textbook formula."""
    return softmax_of(logits)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention that is wrong by a size; called with a size, it gives the implementation.

    Attributes:
        size: size of the fault.
    """

    size: float = 0.0

    def weights(self, keys: Array, p: Array) -> Array:
        """Return the weights s, (*b, n, T)."""
        raise NotImplementedError

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Return L(p), (*b,)."""
        raise NotImplementedError

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return ∇L(p), (*b, d)."""
        raise NotImplementedError

    def log_excess(self, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        """Return sign and logarithm of L(p) − L_α."""
        raise NotImplementedError

    def __call__(self, size: float) -> Implementation:
        """Return the reference with this attention, wrong by that size."""
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
    """Softmax attention with another normaliser.

    Attributes:
        weights_of: (logits, size) → weights.
        pulled_back: (logits, weights, scores, size) → Jᵀγ.
        single: whether the logits are computed in float32.
    """

    weights_of: Callable[[Array, float], Array]
    pulled_back: Callable[[Array, Array, Array, float], Array] = covariance
    single: bool = False

    def logits(self, keys: Array, p: Array) -> Array:
        """Return K p, (*b, n, T)."""
        xp = array_namespace(keys, p)
        if self.single:
            keys, p = xp.astype(keys, xp.float32), xp.astype(p, xp.float32)
        return xp.sum(keys * p[..., None, None, :], axis=-1)

    def weights(self, keys: Array, p: Array) -> Array:
        """Return the weights s, (*b, n, T)."""
        xp = array_namespace(keys, p)
        return xp.astype(self.weights_of(self.logits(keys, p), self.size), xp.float64)

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Return (1/n) Σ ℓ(γᵀs), (*b,)."""
        xp = array_namespace(keys)
        return xp.mean(loss.value(xp.sum(self.weights(keys, p) * scores, axis=-1)), axis=-1)

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return (1/n) Σ ℓ'(γᵀs) Kᵀ Jᵀγ by this formula, which cancels where the softmax saturates."""
        xp = array_namespace(keys)
        s = self.weights(keys, p)
        slope = loss.derivative(xp.sum(s * scores, axis=-1))[..., None]
        coefficients = slope * self.pulled_back(self.logits(keys, p), s, scores, self.size) / keys.shape[-3]
        return without_scale(xp.sum(xp.sum(coefficients[..., None] * keys, axis=-2), axis=-2))

    def log_excess(self, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        """Return sign and logarithm of L(p) − L_α, from these weights without further cancellation."""
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


@dataclass(frozen=True)
class Shifted(Attention):
    """The attention softmax(K p + δ), as careful as the reference: δ is a further coordinate of the keys, where p is 1.

    So a fault of size 0 is the reference to the last digits, and a small one is not caught for its rounding.

    Attributes:
        shift: (logits, size) → δ, as a constant to the gradient; (*b, n, T).
        sink: (logits, size) → the logit of one more token, whose key and score are 0; (*b, n, 1).
    """

    shift: Callable[[Array, float], Array] | None = None
    sink: Callable[[Array, float], Array] | None = None

    def _extend(self, keys: Array, p: Array) -> tuple[Array, Array]:
        """Return keys (*b, n, T or T + 1, d + 1) and prompts (*b, d + 1)."""
        xp = array_namespace(keys, p)
        logits = xp.sum(keys * p[..., None, None, :], axis=-1)
        delta = xp.zeros_like(logits) if self.shift is None else self.shift(logits, self.size)
        full = xp.broadcast_to(keys, (*logits.shape, keys.shape[-1]))
        longer = xp.concat([full, delta[..., None]], axis=-1)
        if self.sink is not None:
            sink_logits = self.sink(logits, self.size)[..., None]
            zeros = xp.zeros_like(longer[..., :1, :-1])
            longer = xp.concat([longer, xp.concat([zeros, sink_logits], axis=-1)], axis=-2)
        return longer, xp.concat([p, xp.ones_like(p[..., :1])], axis=-1)

    def _extend_scores(self, scores: Array) -> Array:
        xp = array_namespace(scores)
        return scores if self.sink is None else xp.concat([scores, xp.zeros_like(scores[..., :1])], axis=-1)

    def weights(self, keys: Array, p: Array) -> Array:
        """Compute :func:`reference_attention.risk.softmax_weights` with the shifted logits."""
        return reference.softmax_weights(*self._extend(keys, p))[..., : keys.shape[-2]]

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Compute :func:`reference_attention.risk.risk` with the shifted logits."""
        longer, prompt = self._extend(keys, p)
        return reference.risk(longer, self._extend_scores(scores), loss, prompt)

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Compute :func:`reference_attention.risk.scaled_gradient` with the shifted logits, by the coordinates of p."""
        longer, prompt = self._extend(keys, p)
        gradient = reference.scaled_gradient(longer, self._extend_scores(scores), loss, prompt)
        return ScaledGradient(gradient.log_scale, gradient.direction[..., :-1])

    def log_excess(self, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        """Compute :func:`reference_attention.risk.log_excess_risk` with the shifted logits."""
        longer, prompt = self._extend(keys, p)
        return reference.log_excess_risk(longer, self._extend_scores(scores), loss, prompt, alpha)


@dataclass(frozen=True)
class OtherData(Attention):
    """The reference attention on other keys or scores than given; the SVM and the statement see the given ones.

    Attributes:
        keys_to: (keys, size) → keys.
        scores_to: (scores, size) → scores.
    """

    keys_to: Callable[[Array, float], Array] | None = None
    scores_to: Callable[[Array, float], Array] | None = None

    def _keys(self, keys: Array) -> Array:
        return keys if self.keys_to is None else self.keys_to(keys, self.size)

    def _scores(self, scores: Array) -> Array:
        return scores if self.scores_to is None else self.scores_to(scores, self.size)

    def weights(self, keys: Array, p: Array) -> Array:
        """Compute :func:`reference_attention.risk.softmax_weights` on the changed keys."""
        return reference.softmax_weights(self._keys(keys), p)

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Compute :func:`reference_attention.risk.risk` on the changed data."""
        return reference.risk(self._keys(keys), self._scores(scores), loss, p)

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Compute :func:`reference_attention.risk.scaled_gradient` on the changed data."""
        return reference.scaled_gradient(self._keys(keys), self._scores(scores), loss, p)

    def log_excess(self, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        """Compute :func:`reference_attention.risk.log_excess_risk` on the changed data."""
        return reference.log_excess_risk(self._keys(keys), self._scores(scores), loss, p, alpha)

    def __call__(self, size: float) -> Implementation:
        """Return the reference with this attention; its weights do not depend on scores."""
        implementation = super().__call__(size)
        if self.keys_to is None:
            return REFERENCE.replace(
                "", {f: wrong for f, wrong in implementation.replaced.items() if f is not softmax_weights}
            )
        return implementation


def on_keys(change: Callable[[Array, float], Array]) -> OtherData:
    """Return the reference attention on changed keys: (keys, size) → keys."""
    return OtherData(keys_to=change)


def on_scores(change: Callable[[Array, float], Array]) -> OtherData:
    """Return the reference attention on changed scores: (scores, size) → scores."""
    return OtherData(scores_to=change)


def with_sink(sink: Callable[[Array, float], Array]) -> Shifted:
    """Return the reference attention with one more token of score 0: (logits, size) → its logit."""
    return Shifted(sink=sink)
