"""Attention with a nonlinear head, computed by an implementation that supports only linear heads.

The head is ψ = Σ_j b_j φ_j(·) over hidden units j with activations φ_j. Let the gap g_itj ≥ 0 be how far the number to
which unit j applies φ_j differs between token t and the optimal token of input i, and δ_ij = Σ_t s_it g_itj the mean
gap under the softmax weights s. δ_ij is the excess risk of a linear head with scores −g_itj under the correlation loss,
so ``log_excess_risk`` computes it up to rounding, however small. ∇L(p) is the gradient for a linear head with scores
−|ℓ'_i| Σ_j |b_j| φ'_j g_itj. So all depends on the softmax of the implementation under test, and its faults show.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D, (83).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from generators.optimal_sets import LinearMixing
from reference_attention.loss import Array, Loss
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, log_excess_risk, scaled_gradient
from theorems.core.implementation import Implementation

CORRELATION = LOSSES["correlation"]


@dataclass(frozen=True, eq=False)
class HeadedAttention:
    """The risk L(p) = (1/n) Σ_i ℓ(Y_i ψ(X_iᵀ s_i)) with a head ψ and the softmax weights s_i of an implementation.

    Attributes:
        problem: keys and loss (the scores are not used).
        mixing: the head ψ, with the constants of Lemma 14.
        under_test: the implementation whose softmax is used.
    """

    problem: Problem
    mixing: LinearMixing
    under_test: Implementation

    def log_steps(self, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b n m"]:
        """Return log δ_ij (see the module) for hidden unit j; NaN where the implementation computes a negative δ_ij."""
        # One problem for each input i and hidden unit j; keys, and so softmax weights, are those of input i.
        scores = -np.moveaxis(self.mixing.gaps, 2, 1)[:, :, None]
        keys = self.problem.keys[:, None, None]
        prompt = np.broadcast_to(p[..., None, None, :], (*p.shape[:-1], 1, scores.shape[1], p.shape[-1]))
        alpha = np.argmax(scores, axis=-1)
        sign, log_size = self.under_test[log_excess_risk](keys, scores, CORRELATION, prompt, alpha)
        return np.where(sign > 0, log_size, np.where(sign == 0, -np.inf, np.nan))

    def log_lost(self, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b n"]:
        """Return log(ν_i − Y_i ψ), how far the output for input i is below its supremum ν_i."""
        return log_score_drop(self.mixing, self.log_steps(p))

    def log_excess(self, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b"]:
        """Return log(L − L_*) with L_* = (1/n) Σ_i ℓ(ν_i); NaN where the implementation computes a negative L − L_*."""
        log_lost = self.log_lost(p)
        sign = np.where(np.isfinite(log_lost), 1.0, 0.0)
        _, log_size = self.problem.loss.log_excess(self.mixing.nu, sign, np.where(sign > 0, log_lost, 0.0))
        log_size = np.where(np.isnan(log_lost), np.nan, log_size)
        return np.asarray(np.logaddexp.reduce(log_size, axis=-1) - math.log(self.problem.n))

    def scaled_gradient(self, p: Float64[np.ndarray, "*b d"]) -> ScaledGradient:
        """Return ∇L as a direction and the logarithm of the scale by which it is to be multiplied."""
        mixing, head = self.mixing, self.mixing.head
        log_steps = self.log_steps(p)
        inputs = mixing.best + head.signs * np.exp(np.minimum(log_steps, 700.0))
        outputs = mixing.nu - np.exp(np.minimum(log_score_drop(mixing, log_steps), 700.0))
        slopes = np.abs(head.weights) * head.units("slope", inputs, np.broadcast_to(head.signs, inputs.shape))
        steep = np.exp(self.problem.loss.log_slope(outputs))
        scores = -steep[..., None] * np.sum(slopes[..., None, :] * mixing.gaps, axis=-1)
        return self.under_test[scaled_gradient](self.problem.keys, scores, CORRELATION, p)

    def as_implementation(self) -> Implementation:
        """Return an implementation with this risk and gradient, which ignores the arguments scores, loss and α."""

        def excess(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
            log_size = self.log_excess(p)
            return np.where(np.isnan(log_size), -1.0, 1.0), log_size

        def gradient(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
            return self.scaled_gradient(p)

        return self.under_test.replace(self.under_test.name, {log_excess_risk: excess, scaled_gradient: gradient})


def log_score_drop(mixing: LinearMixing, log_steps: Float64[np.ndarray, "*b n m"]) -> Float64[np.ndarray, "*b n"]:
    """Return log Σ_j |b_j| |φ_j(z*_j + σ_j δ_j) − φ_j(z*_j)|, (*b, n), for log δ_j of each hidden unit j.

    The sum is how far the output may fall. z*_j is the input of unit j for the optimal token, and σ_j = ±1 is the
    direction in which this input must move for the output to fall. b_j and φ_j are weight and activation of unit j.
    """
    head = mixing.head
    shape = log_steps.shape
    signs, best = np.broadcast_to(head.signs, shape), np.broadcast_to(mixing.best, shape)
    moved = np.isfinite(log_steps)
    with np.errstate(invalid="ignore"):
        change = head.units("log_change", best, signs, np.where(moved, log_steps, 0.0))
        change = np.where(moved, change, log_steps) + np.log(np.abs(head.weights))
    return np.asarray(np.logaddexp.reduce(change, axis=-1))
