"""The statements' own evaluation of softmax attention, every number with a bound on its rounding error.

Independent of :mod:`reference_attention.risk`, which is under test: here the covariance of scores and keys under the
softmax weights is taken pairwise, Σ_u s_t s_u (γ_t − γ_u), so that nothing cancels at any norm of the
prompt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.forward_error import UNDERFLOW, dot, log_weight_error, logit_error, relative_error
from theorems.rounding.textbook import textbook_gradient_error, textbook_output_error, textbook_weight_error

GRADIENT = tolerance(
    "gradient",
    "(1/n) Σ_i |ℓ'_i| Σ_t s_t |δk_tj| (|δγ_t| r_t + Σ_u s_u |δγ_u| (r_t + r_u)) per coordinate j",
    "evaluation.Evaluation.gradient: r_t is the relative error of s_t and ℓ'; each product in the"
    " covariance inherits it, relative to its own size; inner products with p_mm or p add (d + 2) eps Σ|terms|",
)


@dataclass(frozen=True, eq=False)
class BoundedGradient:
    """∇L = e^{log_scale} · (direction ± error), log_scale (b,), direction and error (b, d).

    ``error`` covers this evaluation and one more, by any float64 method that works with differences.
    """

    log_scale: Float64[np.ndarray, "b"]
    direction: Float64[np.ndarray, "b d"]
    error: Float64[np.ndarray, "b d"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Softmax attention of a problem at points p, shape (b, d).

    Attributes:
        problem: keys, scores, loss.
        points: p, (b, d).
        textbook_eps: that of the implementation compared with; its errors are added where it is not zero.
    """

    problem: Problem
    points: Float64[np.ndarray, "b d"]
    textbook_eps: float = 0.0

    @cached_property
    def token(self) -> Int64[np.ndarray, "b n"]:
        """The token of largest logit, which differences refer to."""
        return np.asarray(np.argmax(dot(self.problem.keys, self.points), axis=-1))

    @cached_property
    def key_differences(self) -> Float64[np.ndarray, "b n T d"]:
        """k_t − k_token."""
        keys = self.problem.keys
        return np.asarray(keys[None] - keys[np.arange(self.problem.n), self.token][:, :, None, :])

    @cached_property
    def score_differences(self) -> Float64[np.ndarray, "b n T"]:
        """γ_t − γ_token."""
        scores = self.problem.scores
        return np.asarray(scores[None] - scores[np.arange(self.problem.n), self.token][:, :, None])

    @cached_property
    def log_weights(self) -> Float64[np.ndarray, "b n T"]:
        """log s_t."""
        relative = dot(self.key_differences, self.points)
        return relative - np.logaddexp.reduce(relative, axis=-1, keepdims=True)

    @cached_property
    def log_weights_error(self) -> Float64[np.ndarray, "b n T"]:
        """:func:`theorems.rounding.forward_error.log_weight_error` of this evaluation, and of one more like it."""
        return log_weight_error(logit_error(self.key_differences, self.points), self.log_weights)

    @cached_property
    def textbook_weights_error(self) -> Float64[np.ndarray, "b n T"]:
        """What a textbook kernel's s_t may be off by, absolutely; 0 for an implementation that is none."""
        if not self.textbook_eps:
            return np.zeros_like(self.log_weights)
        return textbook_weight_error(self.problem, self.points, self.log_weights, self.textbook_eps)

    @cached_property
    def textbook_outputs_error(self) -> Float64[np.ndarray, "b n"]:
        """What a textbook kernel's γᵀs may be off by, absolutely; 0 for an implementation that is none."""
        if not self.textbook_eps:
            return np.zeros_like(self.outputs)
        sizes = np.abs(self.problem.scores)
        return textbook_output_error(self.weights, self.textbook_weights_error, sizes, self.textbook_eps)

    def textbook_gradient_error(
        self, eps: float, score_sizes: Float64[np.ndarray, "n T"] | None = None, extra: int = 0
    ) -> Float64[np.ndarray, "b d"]:
        """:func:`theorems.rounding.textbook.textbook_gradient_error` at these points."""
        sizes = np.abs(self.problem.scores) if score_sizes is None else score_sizes
        return textbook_gradient_error(self.problem, self.points, self.log_weights, self.log_slopes, sizes, eps, extra)

    @cached_property
    def weights(self) -> Float64[np.ndarray, "b n T"]:
        """s_t."""
        return np.asarray(np.exp(self.log_weights))

    @cached_property
    def outputs(self) -> Float64[np.ndarray, "b n"]:
        """γ_iᵀ s_i."""
        chosen = self.problem.scores[np.arange(self.problem.n), self.token]
        return np.asarray(chosen + np.sum(self.weights * self.score_differences, axis=-1))

    @cached_property
    def outputs_error(self) -> Float64[np.ndarray, "b n"]:
        """Σ_t s_t |δγ_t| (relative error of s_t + (T + 3) EPS) + 2 EPS |γᵀs|."""
        relative = relative_error(self.log_weights_error) + (self.problem.T + 3) * EPS
        size = np.sum(self.weights * np.abs(self.score_differences) * relative, axis=-1)
        return np.asarray(size + 2 * EPS * np.abs(self.outputs))

    @cached_property
    def log_slopes(self) -> Float64[np.ndarray, "b n"]:
        """log |ℓ'(γ_iᵀ s_i)|."""
        return np.asarray(self.problem.loss.log_slope(self.outputs))

    @cached_property
    def log_slopes_error(self) -> Float64[np.ndarray, "b n"]:
        """|d log|ℓ'| / du| ≤ 1 for every loss here, 0 where ℓ' is constant; four roundings of the formula itself."""
        constant = self.problem.loss.log_lipschitz(*self.problem.score_range) == -math.inf
        moved = np.zeros_like(self.outputs) if constant else self.outputs_error
        return np.asarray(moved + 4 * EPS * (1 + np.abs(self.log_slopes)))

    def log_complement(self, alpha: Int64[np.ndarray, "n"]) -> Float64[np.ndarray, "b n"]:
        """log(1 − s_iα_i), from the other tokens; error ≤ max ``log_weights_error`` + (T + 2) EPS."""
        hidden = np.arange(self.problem.T) == alpha[:, None]
        return np.asarray(np.logaddexp.reduce(np.where(hidden, -math.inf, self.log_weights), axis=-1))

    def log_weight_of(self, alpha: Int64[np.ndarray, "n"]) -> Float64[np.ndarray, "b n"]:
        """log s_iα_i."""
        return self.log_weights[:, np.arange(self.problem.n), alpha]

    @cached_property
    def spreads(self) -> tuple[Float64[np.ndarray, "b n T"], Float64[np.ndarray, "b n T"]]:
        """Sign and logarithm of γ_t − γᵀs = Σ_u s_u (γ_t − γ_u), which may be as small as the weights."""
        scores = self.problem.scores
        pairs = scores[:, :, None] - scores[:, None, :]
        with np.errstate(divide="ignore"):
            logs = self.log_weights[:, :, None, :] + np.log(np.abs(pairs))
            top = np.max(logs, axis=-1, keepdims=True)
            top = np.where(np.isfinite(top), top, 0.0)
            total = np.sum(np.sign(pairs) * np.exp(logs - top), axis=-1)
            return np.sign(total), top[..., 0] + np.log(np.abs(total))

    @cached_property
    def log_sizes(self) -> tuple[Float64[np.ndarray, "b n T"], Float64[np.ndarray, "b n #T"]]:
        """log |δγ_t| and log Σ_u s_u |δγ_u|: what the terms of γ_t − γᵀs are as large as."""
        with np.errstate(divide="ignore"):
            own = np.log(np.abs(self.score_differences))
        return own, np.logaddexp.reduce(self.log_weights + own, axis=-1, keepdims=True)

    @cached_property
    def log_factors(self) -> Float64[np.ndarray, "b n T"]:
        """log(|ℓ'_i| s_t / n); −inf at the selected token and its duplicates, which add nothing to ∇L."""
        apart = np.any(self.key_differences != 0, axis=-1)
        size = (self.log_slopes[..., None] - math.log(self.problem.n)) + self.log_weights
        return np.where(apart, size, -math.inf)

    def product_error(self, shift: Float64[np.ndarray, "b 1 1"]) -> Float64[np.ndarray, "b n T"]:
        """Relative error of s_t, ℓ' and their products, whose logarithms (and ``shift``) are added up."""
        logs = np.zeros_like(self.log_weights)
        for added in (self.log_factors, self.spreads[1]):
            logs += np.where(np.isfinite(added), np.abs(added), 0.0)
        roundings = EPS * (4 * logs + 2 * np.abs(shift) + self.problem.T + self.problem.n + 12)
        return relative_error(self.log_weights_error + self.log_slopes_error[..., None] + roundings)

    @cached_property
    def gradient(self) -> BoundedGradient:
        """∇L = (1/n) Σ_i ℓ'_i Σ_t c_it δk_it with c_t = s_t (γ_t − γᵀs) = s_t Σ_u s_u (γ_t − γ_u).

        Error of coordinate j, r_t the relative error of s_t ℓ' and of the products with it:
        (1/n) Σ_i |ℓ'_i| Σ_t s_t |δk_tj| ( |δγ_t| r_t + Σ_u s_u |δγ_u| (r_t + max r) ).

        For a textbook kernel the scale is at least that of its error: what it reports where ∇L is far below its
        rounding is noise, which would overflow in units of ∇L.
        """
        log_factor = self.log_factors
        scale = np.max(log_factor + np.logaddexp(*self.log_sizes), axis=(-2, -1))
        absolute = self.textbook_gradient_error(self.textbook_eps) if self.textbook_eps else None
        if absolute is not None:
            scale = np.maximum(scale, np.log(np.max(absolute, axis=-1)))
        shift = np.where(np.isfinite(scale), scale, 0.0)[:, None, None]
        sign, log_spread = self.spreads
        coefficients = -sign * np.exp(log_factor + log_spread - shift)
        direction = np.sum(coefficients[..., None] * self.key_differences, axis=(1, 2))
        r = self.product_error(shift)
        own, mean = (np.exp(log_factor + log_size - shift) for log_size in self.log_sizes)
        errors = own * r + mean * (r + np.max(r, axis=-1, keepdims=True)) + UNDERFLOW
        error = np.sum(errors[..., None] * np.abs(self.key_differences), axis=(1, 2))
        if absolute is not None:
            error = error + absolute * np.exp(-shift[:, :, 0])
        return BoundedGradient(scale, direction, error)


def scaled_gradient_of(
    under_test: Implementation,
    problem: Problem,
    points: Float64[np.ndarray, "b d"],
    log_scale: Float64[np.ndarray, "b"],
) -> Float64[np.ndarray, "b d"]:
    """The gradient under test, divided by e^{log_scale}; (b, d)."""
    theirs = under_test.scaled_gradient(problem.keys, problem.scores, problem.loss, points)
    reported = np.asarray(theirs.log_scale)
    target = np.where(np.isfinite(log_scale), log_scale, 0.0)
    shift = np.where(np.isneginf(reported), -math.inf, reported - target)
    return np.asarray(theirs.direction) * np.exp(np.minimum(shift, 700.0))[:, None]
