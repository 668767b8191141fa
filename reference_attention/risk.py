"""Risk and gradient of softmax attention, without cancellation, on NumPy arrays and torch tensors alike.

A direct formula in float64 is not merely imprecise: once the softmax saturates, γ − γᵀs cancels, and gradient descent
goes to another limit. All formulas are therefore written in differences to the selected token (the token of largest
logit at p) and in logarithms, so that prompts of norm 1e6 (softmax weights of e^{−10⁶}) are routine.

Shapes: keys (*b, n, T, d), scores (*b, n, T), p (*b, d), where the leading batch axes ``*b`` broadcast. Indices of
inputs are left out where a formula holds for each input: k_t, γ_t and s_t are the key, the score and the softmax weight
of token t.

References: *Max-Margin Token Selection in Attention Mechanism*, (ERM), Lemma 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from reference_attention.loss import Array, Loss
from reference_attention.span import is_thin


class _NumPy:
    """NumPy's functions without their Python wrappers, which take most of the time on small arrays."""

    abs, exp, log, sign, sqrt, matmul, any = np.abs, np.exp, np.log, np.sign, np.sqrt, np.matmul, np.any
    where, mean, broadcast_to, take_along_axis = np.where, np.mean, np.broadcast_to, np.take_along_axis
    sum, max = np.add.reduce, np.maximum.reduce

    @staticmethod
    def argmax(x: np.ndarray, axis: int) -> Any:
        """Return the positions of the largest entries along an axis."""
        return x.argmax(axis)

    @staticmethod
    def reshape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return x in another shape."""
        return x.reshape(shape)

    @staticmethod
    def clip(x: Any, min: float) -> Any:
        """Return max(x, min), entry by entry."""
        return np.maximum(x, min)


def _namespace(*arrays: Array) -> Any:
    """Return :class:`_NumPy` for NumPy arrays, otherwise the namespace of the array API standard."""
    return _NumPy if all(isinstance(x, np.ndarray | np.generic) for x in arrays) else array_namespace(*arrays)


MISSED = 1.0
"""Difference of logits by which another token must exceed the selected token to replace it. The selection by raw logits
may be wrong, because raw logits with a large common offset are inexact."""


@dataclass(frozen=True)
class ScaledGradient:
    """The gradient ∇L = e^{log_scale} · direction, where ``direction`` is of order one unless ∇L is zero.

    Attributes:
        log_scale: shape (*b,); −inf where the gradient is exactly zero.
        direction: shape (*b, d).
    """

    log_scale: Array
    direction: Array

    @property
    def log_norm(self) -> Array:
        """Return log ‖∇L‖, shape (*b,)."""
        xp = _namespace(self.direction)
        return self.log_scale + _log(xp, xp.sqrt(xp.sum(self.direction * self.direction, axis=-1)))


@dataclass(frozen=True)
class Selection:
    """The softmax weights at a prompt, and the token that it selects, the one of largest logit.

    Attributes:
        token: the index of the selected token, (*b, n).
        rows: the differences k_t − k_selected, in a form that points with the same keys may share.
        log_weights: the logarithms of the softmax weights, (*b, n, T).
    """

    token: Array
    rows: _Rows | _Pairs
    log_weights: Array

    @property
    def key_differences(self) -> Array:
        """Return k_t − k_selected, (*b, n, T, d)."""
        return self.rows.of(self.token)


def select(keys: Array, p: Array) -> Selection:
    """Return the selected tokens and log softmax(K p), computed from the logits minus that of the selected token."""
    xp = _namespace(keys, p)
    token = xp.argmax(_logits(xp, keys, p), axis=-1)
    rows = _Pairs(keys) if _pays(xp, keys, p) else _Rows(xp, keys)
    relative = rows.dot(token, p)
    top = xp.max(relative, axis=-1, keepdims=True)
    if bool(xp.any(top > MISSED)):
        # The selection by raw logits was wrong because of cancellation: select by the differences of logits instead.
        token = xp.argmax(relative, axis=-1)
        relative = rows.dot(token, p)
        top = xp.max(relative, axis=-1, keepdims=True)
    relative = relative - top
    log_weights = relative - xp.log(xp.sum(xp.exp(relative), axis=-1, keepdims=True))
    return Selection(token, rows, log_weights)


class _Rows:
    """The differences k_t − k_token of keys to those of the tokens that each point selects, computed for each point."""

    def __init__(self, xp: Any, keys: Array) -> None:
        self._xp, self._keys = xp, keys
        self._token: Array | None = None
        self._differences: Any = None

    def of(self, token: Array) -> Array:
        """Return k_t − k_token, (*b, n, T, d)."""
        if token is not self._token:
            self._token, self._differences = token, self._relative_to(token)
        return self._differences

    def _relative_to(self, token: Array) -> Array:
        """Return k_t − k_token, (*b, n, T, d), without looking for a stored result."""
        xp, keys = self._xp, self._keys
        if xp is _NumPy and keys.ndim == 3:
            return np.asarray(keys - keys[np.arange(len(keys)), token][..., None, :])
        index = xp.broadcast_to(token[..., None, None], (*token.shape, 1, keys.shape[-1]))
        full = xp.broadcast_to(keys, (*token.shape, *keys.shape[-2:]))
        return full - xp.take_along_axis(full, index, axis=-2)

    def dot(self, token: Array, p: Array) -> Array:
        """Return (k_t − k_token)·p, (*b, n, T)."""
        return _dot(self._xp, self.of(token), p[..., None, None, :])

    def squares(self, token: Array) -> Array:
        """Return ‖k_t − k_token‖², (*b, n, T)."""
        differences = self.of(token)
        return _dot(self._xp, differences, differences)

    def combine(self, token: Array, coefficients: Array) -> Array:
        """Return Σ_it c_it (k_it − k_i,token), (*b, d), for the coefficients c, (*b, n, T)."""
        xp, leading = self._xp, coefficients.shape[:-2]
        flat = xp.reshape(coefficients, (*leading, 1, -1))
        rows = xp.reshape(self.of(token), (*leading, -1, self._keys.shape[-1]))
        return xp.matmul(flat, rows)[..., 0, :]


class _Pairs:
    """The differences of all pairs of keys of each input, computed once for all points; this saves memory for large d.

    The array has the entry k_it − k_iu at (i, u, t). The methods are those of :class:`_Rows`.
    """

    def __init__(self, keys: Array) -> None:
        n, tokens, d = keys.shape
        self._shape = (n, tokens, tokens)
        self._each = np.arange(n)
        self._flat = np.asarray(keys[:, None] - keys[:, :, None]).reshape(-1, d)

    def of(self, token: Array) -> Array:
        """Return k_t − k_token, (*b, n, T, d)."""
        return np.asarray(self._flat.reshape(*self._shape, -1)[self._each, token])

    def dot(self, token: Array, p: Array) -> Array:
        """Return (k_t − k_token)·p, (*b, n, T)."""
        products = (p @ self._flat.T).reshape(*p.shape[:-1], *self._shape)
        return np.asarray(np.take_along_axis(products, token[..., None, None], axis=-2)[..., 0, :])

    def squares(self, token: Array) -> Array:
        """Return ‖k_t − k_token‖², (*b, n, T)."""
        return np.asarray(np.vecdot(self._flat, self._flat).reshape(self._shape)[self._each, token])

    def combine(self, token: Array, coefficients: Array) -> Array:
        """Return Σ_it c_it (k_it − k_i,token), (*b, d), for the coefficients c, (*b, n, T)."""
        placed = np.zeros((*token.shape[:-1], *self._shape))
        np.put_along_axis(placed, token[..., None, None], coefficients[..., None, :], axis=-2)
        return np.asarray(placed.reshape(*token.shape[:-1], -1) @ self._flat)


def _pays(xp: Any, keys: Array, p: Array) -> bool:
    """Return whether :class:`_Pairs` saves memory: d is large, and there are more points than tokens per input."""
    if xp is not _NumPy or keys.ndim != 3:
        return False
    n, tokens, d = keys.shape
    return is_thin(n * (tokens - 1), d) and p.size > tokens * d


def _of_tokens(xp: Any, scores: Array, token: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the scores, and for each input the score of the given token, (*b, n, 1).

    Args:
        xp: the array namespace.
        scores: (*b, n, T), or an array that broadcasts to it.
        token: the index of a token of each input, (*b, n).
        shape: the shape (*b, n, T) to which scores and tokens are broadcast.
    """
    if xp is _NumPy and scores.ndim == 2:
        return scores, scores[np.arange(len(scores)), token][..., None]
    scores, token = xp.broadcast_to(scores, shape), xp.broadcast_to(token, shape[:-1])
    return scores, xp.take_along_axis(scores, token[..., None], axis=-1)


def _or(xp: Any, condition: Array, x: Array, value: float) -> Array:
    """Return x where the condition holds and the number ``value`` elsewhere."""
    return np.where(condition, x, value) if xp is _NumPy else xp.where(condition, x, xp.full_like(x, value))


def _log(xp: Any, x: Array) -> Array:
    """Return log x, which is −inf at zero, without a warning."""
    if xp is not _NumPy:
        return xp.log(x)
    with np.errstate(divide="ignore"):
        return np.log(x)


def _dot(xp: Any, a: Array, b: Array) -> Array:
    """Return the inner products of a and b along the last axis."""
    return np.vecdot(a, b) if xp is _NumPy else xp.einsum("...d,...d->...", a, b)


def _logits(xp: Any, keys: Array, p: Array) -> Array:
    """Return K p, (*b, n, T), accurate enough only for choosing a token."""
    if keys.ndim > 3:
        return _dot(xp, keys, p[..., None, None, :])
    flat = xp.reshape(keys, (-1, keys.shape[-1]))
    return xp.reshape(xp.matmul(p, flat.T), (*p.shape[:-1], *keys.shape[:-1]))


def softmax_weights(keys: Array, p: Array) -> Array:
    """Return s_i = softmax(K_i p), shape (*b, n, T)."""
    xp = _namespace(keys, p)
    return xp.exp(select(keys, p).log_weights)


def predictions(keys: Array, scores: Array, p: Array) -> Array:
    """Return the outputs γ_iᵀ s_i, computed as γ_selected + Σ_t s_t (γ_t − γ_selected), shape (*b, n)."""
    xp = _namespace(keys, scores, p)
    chosen = select(keys, p)
    scores, best = _of_tokens(xp, scores, chosen.token, chosen.log_weights.shape)
    return best[..., 0] + xp.sum(xp.exp(chosen.log_weights) * (scores - best), axis=-1)


def risk(keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
    """Return L(p) = (1/n) Σ_i ℓ(γ_iᵀ s_i), shape (*b,)."""
    xp = _namespace(keys, scores, p)
    return xp.mean(loss.value(predictions(keys, scores, p)), axis=-1)


def scaled_gradient(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Return ∇L(p) = (1/n) Σ_i ℓ'(γ_iᵀ s_i) Σ_t s_it (γ_it − γ_iᵀ s_i) k_it, as a log scale and a direction.

    Let δ denote differences to the selected token, as in δk_t = k_t − k_selected, and E[δγ] = Σ_t s_t δγ_t. Then γ_t −
    γᵀs = δγ_t − E[δγ], and k_t may be replaced by δk_t, so that the selected token contributes nothing and nothing
    cancels when the softmax saturates. The largest term |ℓ'| s_t |γ_t − γᵀs| ‖δk_t‖/n is factored out as e^{log_scale};
    terms with δk_t = 0 do not count. If all terms are zero, log_scale is −inf and the direction zero.
    """
    xp = _namespace(keys, scores, p)
    chosen = select(keys, p)
    scores, best = _of_tokens(xp, scores, chosen.token, chosen.log_weights.shape)
    differences = scores - best
    mean = xp.sum(xp.exp(chosen.log_weights) * differences, axis=-1, keepdims=True)
    # Where a token scores as much as the selected token, γ_t − γᵀs = −E[δγ], which may underflow; its logarithm does
    # not.
    mean_sign, log_mean = signed_logsumexp(xp.sign(differences), chosen.log_weights + _log(xp, xp.abs(differences)))
    ties = differences == 0
    centred = xp.where(ties, -mean_sign[..., None], differences - mean)
    log_centred = xp.where(ties, log_mean[..., None], _log(xp, xp.abs(centred)))
    slope = loss.log_slope((best + mean)[..., 0]) - math.log(keys.shape[-3])
    size = chosen.rows.squares(chosen.token)
    log_terms = chosen.log_weights + log_centred + slope[..., None]
    distinct = size > 0
    log_terms = _or(xp, distinct, log_terms, -math.inf)
    log_sized = log_terms + xp.log(_or(xp, distinct, size, 1.0)) / 2
    log_scale = xp.max(xp.reshape(log_sized, (*log_terms.shape[:-2], -1)), axis=-1)
    shift = xp.clip(log_scale, min=-1e300)  # −inf − (−inf) would be NaN
    coefficients = -xp.sign(centred) * xp.exp(log_terms - shift[..., None, None])
    return ScaledGradient(log_scale, chosen.rows.combine(chosen.token, coefficients))


def log_excess_risk(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
    """Return sign and logarithm of L(p) − L_α, where L_α = (1/n) Σ_i ℓ(γ_iα_i) is the risk if all weight is on α.

    Args:
        keys: K, (*b, n, T, d).
        scores: γ, (*b, n, T).
        loss: ℓ.
        p: the prompts, (*b, d).
        alpha: the index α_i of a token of each input, (*b, n).

    Returns:
        ``(sign, log |L(p) − L_α|)``, each of shape (*b,); exact to rounding even where L(p) − L_α underflows.
    """
    xp = _namespace(keys, scores, p)
    chosen = select(keys, p)
    scores, reference = _of_tokens(xp, scores, alpha, chosen.log_weights.shape)
    gap = reference - scores
    size = xp.abs(gap)
    sign, log_size = signed_logsumexp(xp.sign(gap), chosen.log_weights + _log(xp, size))
    sign, log_size = loss.log_excess(reference[..., 0], sign, log_size)
    sign, log_size = signed_logsumexp(sign, log_size)
    return sign, log_size - math.log(keys.shape[-3])


def signed_logsumexp(sign: Array, log_size: Array) -> tuple[Array, Array]:
    """Return the sign and the logarithm of |Σ sign·e^{log_size}| over the last axis."""
    xp = _namespace(sign, log_size)
    log_size = _or(xp, sign != 0, log_size, -math.inf)
    top = xp.max(log_size, axis=-1)
    shift = _or(xp, top > -math.inf, top, 0.0)
    total = xp.sum(sign * xp.exp(log_size - shift[..., None]), axis=-1)
    size = xp.abs(total)
    nonzero = size > 0
    log_total = shift + xp.log(_or(xp, nonzero, size, 1.0))
    return xp.sign(total), _or(xp, nonzero, log_total, -math.inf)
