"""Rounding of a kernel that computes softmax attention by the textbook formula, in numbers of spacing ``eps`` at one.

Such a kernel forms raw logits k·p, subtracts a maximum, exponentiates, divides by a sum and averages the values; its
gradient is what automatic differentiation makes of that. Its errors are absolute: they do not shrink with 1 − s.

Analysis, u = eps/2, first for one token t with S_t = Σ_j |k_tj p_j| and m the largest logit:

- logit: k and p are rounded once each, d products and d − 1 sums: (d + 2) u S_t; ``extra`` more where it is formed in
  further steps. (d + 8) eps S_t also pays for a query that was scaled up and down again.
- l_t − m: u |l_t − m| ≤ u |log s_t|, and where the maximum is updated block by block (flash attention) the same again
  for the telescoping differences of maxima: 2 eps |log s_t|.
- exponential: :data:`EXPONENTIAL` eps, the accuracy that PyTorch promises of the fast one in its CPU flash kernel.

Together e_t. The logarithm of the normaliser moves by at most log Σ_u s_u e^{e_u} upwards, and by Jensen's inequality
by less downwards. Sums of T terms, each rescaled with each update of the maximum, and a division: (2 T + 6) eps. So

    |log ŝ_t − log s_t| ≤ e_t + log Σ_u s_u e^{e_u} + (2 T + 6) eps,

and ŝ_t itself, which lies in [0, 1 + (2 T + 6) eps] like s_t, is off by at most min(1, s_t (e^{that} − 1)) + what
underflows. Whatever the logits, the weights sum to 1 up to (2 T + 6) eps: so ŝ_t is also off by no more than the
others are together, and that. It is what keeps the bound small where the softmax saturates.

References: N. Higham, *Accuracy and Stability of Numerical Algorithms*, Sections 3.1 and 4.2; P. Blanchard, D. Higham,
N. Higham, *Accurately computing the log-sum-exp and softmax functions*.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS, log_expm1
from reference_attention.problem import Problem
from theorems.core.tolerances import tolerance
from theorems.rounding.forward_error import UNDERFLOW, dot

KERNEL = tolerance(
    "kernel",
    "a_t = min(1, s_t (e^{x_t} − 1)), x_t = e_t + log Σ s e^e + (2T + 6) eps, e_t = eps ((d + 8) Σ_j"
    " |k_tj p_j| + 20 + 2|log s_t|)",
    "textbook: what a kernel's weights may be off by in its own numbers, added to log-weights, gradient, mixing"
    " and descent-rounding for an implementation that is one; its gradient is a sum of products of such weights",
)

EXPONENTIAL = 20
"""Units in the last place by which an exponential may be off: ``exp_u20`` of PyTorch's vectorised CPU kernels."""
LARGEST_EXPONENT = 700.0
"""Beyond it an exponential is taken to be this one: a bound that large allows everything anyway."""


def textbook_underflow(eps: float) -> float:
    """Weights below this may be lost: eps⁵ is 2¹¹ times the smallest normal number of float32, more in float64."""
    return eps**5


def sum_error(tokens: int, eps: float) -> float:
    """Relative rounding of a sum over T tokens that is rescaled as it grows, and of a division: (2 T + 6) eps."""
    return (2 * tokens + 6) * eps


def textbook_weight_error(
    problem: Problem,
    points: Float64[np.ndarray, "b d"],
    log_weights: Float64[np.ndarray, "b n T"],
    eps: float,
    extra: int = 0,
) -> Float64[np.ndarray, "b n T"]:
    """Absolute error of s_t, see the analysis above.

    Args:
        log_weights: the exact ones, up to float64's rounding.
        extra: further roundings in each logit.
    """
    logits = (problem.d + 8 + extra) * eps * dot(np.abs(problem.keys), np.abs(points))
    own = logits + eps * (EXPONENTIAL + 2 * np.abs(log_weights))
    normaliser = np.logaddexp.reduce(log_weights + own, axis=-1, keepdims=True)
    total = own + np.maximum(normaliser, 0.0) + sum_error(problem.T, eps)
    error = np.exp(np.minimum(log_weights + log_expm1(total), 0.0)) + textbook_underflow(eps)
    others = np.sum(error, axis=-1, keepdims=True) * (1 + 4 * EPS) - error
    return np.asarray(np.minimum(error, others + sum_error(problem.T, eps)))


def textbook_output_error(
    weights: Float64[np.ndarray, "b n T"],
    weight_error: Float64[np.ndarray, "b n T"],
    score_sizes: Float64[np.ndarray, "n T"],
    eps: float,
) -> Float64[np.ndarray, "b n"]:
    """Absolute error of γᵀs: Σ a_t |γ_t|, a_t that of s_t, and the sum's own; scores are rounded once."""
    tokens = score_sizes.shape[-1]
    lost = textbook_underflow(eps) * np.max(score_sizes, axis=-1)
    rounded = sum_error(tokens, eps) * np.sum((weights + weight_error) * score_sizes, axis=-1)
    return np.asarray(np.sum(weight_error * score_sizes, axis=-1) + rounded + lost)


def textbook_gradient_error(
    problem: Problem,
    points: Float64[np.ndarray, "b d"],
    log_weights: Float64[np.ndarray, "b n T"],
    log_slopes: Float64[np.ndarray, "b n"],
    score_sizes: Float64[np.ndarray, "n T"],
    eps: float,
    extra: int = 0,
) -> Float64[np.ndarray, "b d"]:
    """Absolute error of ∇L = (1/n) Σ_i ℓ'_i Σ_t c_t k_t, c_t = s_t (γ_t − γᵀs), per coordinate.

    With F = Σ s|γ|, a_t the error of s_t and φ that of γᵀs,

        |δc_t| ≤ a_t (|γ_t| + F) + (s_t + a_t)(φ + 4 eps (|γ_t| + F + φ)),

    each times |k_tj|. Where the maximum is subtracted within the differentiated graph, its gradient −Σ c_t, which is
    zero but for rounding, falls on whichever token was the largest: Σ |δc_t| + (T + 2) eps Σ |c_t| once more, times
    max_t |k_tj|. The slope is taken at an output that is off by φ, |d log|ℓ'|/du| ≤ 1, and never exceeds M1. The sums
    over tokens and inputs and the upstream gradient add (T + d + n + 12) eps. What underflows is relative to the
    largest score, slope and key, to which a kernel's arguments are scaled.

    Args:
        score_sizes: |γ_t|, or Σ_j |x_tj v_j| where the scores are computed as inner products.
        extra: further roundings in each logit.
    """
    s, a = np.exp(log_weights), textbook_weight_error(problem, points, log_weights, eps, extra)
    mean = np.sum(s * score_sizes, axis=-1, keepdims=True)
    phi = textbook_output_error(s, a, score_sizes, eps)[..., None]
    size = score_sizes + mean
    c = s * size
    c_error = a * size + (s + a) * (phi + 4 * eps * (size + phi))
    keys = np.abs(problem.keys)
    largest = np.max(keys, axis=-2)
    stray = np.sum(c_error + (problem.T + 2) * eps * c, axis=-1)[..., None] * largest
    errors = np.sum(c_error[..., None] * keys, axis=-2) + stray

    slopes = np.exp(np.minimum(log_slopes, LARGEST_EXPONENT))
    low, high = problem.score_range
    steepest = np.exp(min(problem.loss.log_bound(low, high), LARGEST_EXPONENT))
    bends = problem.loss.log_lipschitz(low, high) > -math.inf
    moved = np.expm1(np.minimum(phi[..., 0], LARGEST_EXPONENT)) if bends else np.zeros_like(slopes)
    slope_error = np.minimum(slopes * moved, steepest) + (problem.T + problem.d + problem.n + 12) * eps * slopes
    values = np.sum(c[..., None] * keys, axis=-2)
    lost = textbook_underflow(eps) * problem.T * np.max(score_sizes, axis=-1)[:, None] * (largest + problem.key_scale)
    each = (slopes + slope_error)[..., None] * (errors + lost) + slope_error[..., None] * values
    return np.asarray(np.mean(each, axis=1) + UNDERFLOW)
