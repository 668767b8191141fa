"""Softmax attention at points (prompts p), as formulas on bounded arrays, which carry bounds of their rounding errors.

The formulas are independent of :mod:`reference_attention.risk`, which is under test. The covariance of scores and keys
under the softmax weights is computed from pairs of tokens, Σ_u s_t s_u (γ_t − γ_u), so that nothing cancels at any norm
of the prompt. A *textbook kernel* is an attention kernel that computes softmax and gradients by their usual formulas,
in its own number format, such as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.span import is_thin
from theorems.bounded import Bounded, exact, in_floats, spacing, value_of, with_rounding
from theorems.core.claim import Form, NotANumber
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.core.points import Violation
from theorems.rounding.softmax import recompute_weights, softmax

EXPONENTIAL = 20.0
"""Largest error of a kernel's exponential, in units in the last place: that of ``exp_u20`` of PyTorch's vectorised CPU
kernels."""

BLOCK = 16
"""Least number of tokens that a kernel is assumed to process at a time: a tile of the hardware's matrix products. The
error bounds also cover kernels that process tokens one by one, if their exponentials are accurate to one unit in the
last place."""

LARGEST_EXPONENT = 709.0
"""Largest exponent of which an exponential is computed; larger exponents are replaced by this one, whose exponential
float64 can represent."""

Numbers = Any
"""A bounded array; within :func:`theorems.bounded.in_floats` an array of floats without error bounds."""


@dataclass(frozen=True, eq=False)
class AttentionAt:
    """Softmax attention of a problem at b points p, with bounds of its rounding error.

    Attributes:
        problem: keys, scores, loss.
        points: p, (b, d); bounded arrays if they are not exact floats, such as R q̄ for a direction q̄.
        textbook_eps: distance between 1 and the next number of the format in which the kernel under test computes; 0
            for an implementation that computes with differences of keys and scores.
    """

    problem: Problem
    points: Numbers
    textbook_eps: float = 0.0

    @cached_property
    def token(self) -> Int64[np.ndarray, "b n"]:
        """The token of the largest logit of each input, up to rounding; differences of keys are relative to its key."""
        points = value_of(self.points)
        n, tokens, d = self.problem.keys.shape
        if len(points) > 1 and is_thin(n * (tokens - 1), d):
            logits = (points @ self.problem.keys.reshape(-1, d).T).reshape(-1, n, tokens)
        else:
            logits = np.vecdot(self.problem.keys, points[:, None, None])
        return np.argmax(logits, axis=-1)

    @cached_property
    def key_differences(self) -> Numbers:
        """The differences k_t − k_token to the key of :attr:`token`, (b, n, T, d)."""
        return -key_rows(self.problem, self.token)

    @cached_property
    def _pairs(self) -> Numbers | None:
        """All differences k_it − k_iu, at (i, u, t), (n, T, T, d); None if :attr:`key_differences` is smaller.

        If d is large, this table takes less memory than the differences for each point.
        """
        n, tokens, d = self.problem.keys.shape
        if not (len(self.points) > tokens and is_thin(n * (tokens - 1), d)):
            return None
        of_each = np.broadcast_to(np.arange(tokens)[:, None], (tokens, n))
        pairs: Any = -key_rows(self.problem, of_each)
        return np.moveaxis(pairs, 0, 1)

    def products(self, vectors: Numbers) -> Numbers:
        """Return (k_t − k_token)·x, (b, n, T), for one vector x per point, ``vectors`` of shape (b, d)."""
        finite = np.isfinite(value_of(vectors)).all() and not (
            isinstance(vectors, Bounded) and np.isinf(vectors.error).any()
        )
        if self._pairs is None or not finite:
            return np.vecdot(self.key_differences, vectors[:, None, None])
        n, tokens, d = self.problem.keys.shape
        products: Any = np.matmul(vectors, self._pairs.reshape(-1, d).T).reshape(len(vectors), n, tokens, tokens)
        each = np.arange(len(vectors))[:, None]
        return products[each, np.arange(n), self.token]

    def _combine(self, coefficients: Numbers, size: Callable[[Any], Any] = lambda rows: rows) -> Numbers:
        """Return Σ_i Σ_t c_it size(k_it − k_i,token), (b, d), for coefficients c; ``size`` acts on single entries."""
        if self._pairs is None:
            return np.einsum("bnt,bntd->bd", coefficients, size(self.key_differences))
        selected = np.arange(self.problem.T) == self.token[..., None]
        placed: Any = np.where(selected[..., None], coefficients[:, :, None, :], 0.0)
        return np.matmul(placed.reshape(len(self.token), -1), size(self._pairs).reshape(-1, self.problem.d))

    @cached_property
    def log_weights(self) -> Numbers:
        """The logarithms log s_t of the softmax weights, (b, n, T)."""
        logits: Any = self.products(self.points)
        log_weights: Any = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return log_weights

    def log_weight_of(self, alpha: Int64[np.ndarray, "n"]) -> Numbers:
        """Return log s_iα_i, the logarithm of the weight of the token α_i of each input, (b, n)."""
        return self.log_weights[:, np.arange(self.problem.n), alpha]

    def log_complement(self, alpha: Int64[np.ndarray, "n"]) -> Numbers:
        """Return log(1 − s_iα_i), computed from the weights of the other tokens, (b, n)."""
        chosen = np.arange(self.problem.T) == alpha[:, None]
        return np.logaddexp.reduce(np.where(chosen, -np.inf, self.log_weights), axis=-1)

    @cached_property
    def weights(self) -> Numbers:
        """The softmax weights s_t, (b, n, T)."""
        weights: Any = np.exp(self.log_weights)
        return weights

    @cached_property
    def outputs(self) -> Numbers:
        """The outputs γ_iᵀ s_i of attention, (b, n)."""
        scores = exact(self.problem.scores)
        best = self.problem.scores[np.arange(self.problem.n), self.token]
        return best + np.sum(self.weights * (scores - best[..., None]), axis=-1)

    @cached_property
    def risk(self) -> Numbers:
        """The risk L = (1/n) Σ_i ℓ(γ_iᵀ s_i), (b,)."""
        return np.mean(self.problem.loss.value(self.outputs), axis=-1)

    @cached_property
    def log_slopes(self) -> Numbers:
        """The logarithms log |ℓ'(γ_iᵀ s_i)| of the slopes of the loss at the outputs, (b, n)."""
        return self.problem.loss.log_slope(self.outputs)

    @cached_property
    def _spreads(self) -> tuple[Float64[np.ndarray, "b n T"], Any]:
        """Two factors of γ_t − γᵀs = e^m Σ_u e^{log s_u − m} (γ_t − γ_u): m and the sum, each (b, n, T).

        m, a float taken as exact, is the largest log s_u over tokens u whose score differs from γ_t. So the sum is
        about as large as the differences of scores, however small the weights are. For tokens t whose score differs
        from the score of :attr:`token`, m is the log weight of :attr:`token`. So two sums over all tokens suffice for
        each point, and no table of pairs is needed.
        """
        scores: Any = exact(self.problem.scores)
        gaps: Any = scores[:, :, None] - scores[:, None, :]
        alike = self.problem.scores == self.problem.scores[np.arange(self.problem.n), self.token][..., None]

        def spread(log_weights: Any) -> tuple[Any, Any]:
            largest = np.max(value_of(log_weights), axis=-1, keepdims=True)
            largest = np.where(np.isfinite(largest), largest, 0.0)
            return largest, np.einsum("bnu,ntu->bnt", np.exp(log_weights - largest), gaps)

        largest_of_all, total = spread(self.log_weights)
        other, rest = spread(np.where(alike, -np.inf, self.log_weights))
        return np.where(alike, other, largest_of_all), np.where(alike, rest, total)

    @cached_property
    def distinct_keys(self) -> Bool[np.ndarray, "b n T"]:
        """A mask of the tokens whose key differs from that of :attr:`token`; only these contribute to the gradient."""
        if self._pairs is None:
            return np.any(value_of(self.key_differences) != 0, axis=-1)
        distinct = np.any(value_of(self._pairs) != 0, axis=-1)
        return np.asarray(distinct[np.arange(self.problem.n), self.token])

    @cached_property
    def _log_factors(self) -> Any:
        """The logarithms log(|ℓ'_i| s_t e^m) with m of :attr:`_spreads`; −∞ where the key equals that of :attr:`token`.

        The shape is (b, n, T). The logarithms are also −∞ for an input whose scores are all equal: its terms of the
        gradient are exactly 0, but the factor would overflow in the unit of the much smaller terms of other inputs.
        """
        slopes: Any = self.log_slopes
        one_score = np.ptp(self.problem.scores, axis=-1)[:, None] == 0
        return np.where(
            self.distinct_keys & ~one_score, self.log_weights + slopes[..., None] + self._spreads[0], -np.inf
        )

    @cached_property
    def log_scale(self) -> Float64[np.ndarray, "b"]:
        """The logarithm of the unit in which the gradient is computed, about its largest term; a float taken as exact.

        The logarithm is 0 where every term of ∇L vanishes. For a textbook kernel the unit is at least about the
        kernel's error, since the kernel returns noise where ∇L is much smaller than this error, and noise would
        overflow in units of ∇L.
        """
        with np.errstate(divide="ignore"):
            sizes = value_of(self._log_factors) + np.log(np.abs(value_of(self._spreads[1])))
            scale = np.max(sizes, axis=(1, 2))
            if self._textbook_error is not None:
                scale = np.maximum(scale, np.log(np.max(self._textbook_error, axis=-1)))
        return np.where(np.isfinite(scale), scale, 0.0)

    @cached_property
    def coefficients(self) -> Numbers:
        """The factors c_t = |ℓ'_i| s_t (γ_t − γᵀs) e^{−log_scale} of k_t − k_token in the gradient, (b, n, T)."""
        coefficients: Any = np.exp(self._log_factors - self.log_scale[:, None, None]) * self._spreads[1]
        return coefficients

    @cached_property
    def gradient(self) -> Numbers:
        """The gradient in its unit, ∇L e^{−log_scale} = −(1/n) Σ_i Σ_t c_t (k_t − k_token), (b, d)."""
        gradient: Any = -self._combine(self.coefficients) / self.problem.n
        return gradient

    @cached_property
    def _textbook_weights(self) -> Bounded:
        """The softmax weights as a textbook kernel computes them, with the kernel's error, (b, n, T)."""
        return textbook_weights(self.problem, self.points, self.textbook_eps)

    @cached_property
    def _textbook_error(self) -> Float64[np.ndarray, "b d"] | None:
        """The error that ∇L of a textbook kernel may have: twice that of its formula in its number format.

        It is None within :func:`theorems.bounded.in_floats`, where no errors are bounded, and for an implementation
        that computes with differences of keys and scores.
        """
        if not self.textbook_eps or not isinstance(self.log_weights, Bounded):
            return None
        weights = textbook_weights(self.problem, self.points, self.textbook_eps, again=True)
        return 2 * textbook_gradient(self.problem, weights, self.textbook_eps).error

    def weights_room(self) -> Float64[np.ndarray, "b n T"]:
        """Return the error that the weights of a correct implementation may have, (b, n, T).

        This is twice the error of this class's own evaluation, because the implementation may use another formula; for
        a textbook kernel, twice the error of the textbook formula in the kernel's number format is added.
        """
        room = 2 * self.weights.error
        return room + 2 * self._textbook_weights.error if self.textbook_eps else room

    def risk_room(self) -> Float64[np.ndarray, "b"]:
        """Return the error that the risk of a correct implementation may have, (b,): twice that of this evaluation.

        For a textbook kernel, which computes outputs γᵀs in its own number format but not ℓ, twice the error of the
        mean loss that these outputs cause is added.
        """
        room = 2 * self.risk.error
        if not self.textbook_eps:
            return np.asarray(room)
        with spacing(self.textbook_eps, EXPONENTIAL):
            outputs = np.sum(self._textbook_weights * with_rounding(self.problem.scores), axis=-1)
        return np.asarray(room + 2 * np.mean(self.problem.loss.value(outputs), axis=-1).error)

    def _any_order(self) -> Float64[np.ndarray, "b d"]:
        """Return a bound of the additional error of ∇L e^{−log_scale} if logarithms are added in another order.

        In another order, the partial sums of the exponent may be larger by |log |ℓ'_i||, and each of four additions
        rounds this by up to half a spacing. Our sum begins with log s_t, which may cancel log |ℓ'_i| where scores are
        large and the loss is not linear.
        """
        sizes = np.abs(value_of(self.coefficients))
        with np.errstate(over="ignore", invalid="ignore"):
            lost = np.expm1(2 * EPS * np.abs(value_of(self.log_slopes)))[..., None]
            lost = np.where(sizes > 0, sizes * lost, 0.0)
            return np.asarray(self._combine(lost, lambda rows: np.abs(value_of(rows))) / self.problem.n)

    def gradient_of(self, under_test: Implementation, claim: str, form: Form = Form.EFFECTIVE) -> Any:
        """Return the gradient under test times e^{−log_scale}, (b, d), with the error that a correct one may have.

        This error is twice the error of our own evaluation, as the implementation may use another formula; for a
        textbook kernel, twice the error of the textbook formula is added.

        Args:
            under_test: the implementation, whose ``scaled_gradient`` is called.
            claim: the name of the claim that is falsified if an entry is not a finite number.
            form: the form of that claim.
        """
        problem = self.problem
        theirs = under_test[scaled_gradient](problem.keys, problem.scores, problem.loss, self.points)
        direction, log_scale = np.asarray(theirs.direction), np.asarray(theirs.log_scale)
        # A correct result never exceeds the largest exponent, because our unit is at least about the gradient's
        # rounding error.
        shift = np.where(np.isneginf(log_scale), -np.inf, np.minimum(log_scale - self.log_scale, LARGEST_EXPONENT))
        unit = np.exp(shift)[:, None]
        if not isinstance(self.gradient, Bounded):
            return direction * unit
        finite = np.isfinite(direction * unit)
        # Where our own error bound is infinite, for example because an exponential overflows, every result is accepted.
        if not finite[np.isfinite(self.gradient.error)].all():
            raise NotANumber(claim, "the gradient under test is not finite", form)
        direction, shift = np.where(finite, direction, 0.0), np.where(finite.all(axis=-1), shift, 0.0)
        gradient: Any = np.exp(exact(shift))[:, None] * direction
        allowed = 2 * (self.gradient.error + self._any_order())
        if self._textbook_error is not None:
            allowed = allowed + self._textbook_error * np.exp(-self.log_scale)[:, None]
        return gradient.widen(np.where(np.isnan(allowed) | ~finite, np.inf, allowed))


def violation_of(sides: Callable[[Float64[np.ndarray, "m d"]], tuple[Any, Any]]) -> Violation:
    """Return the function points → (right − left)/|right|, which :func:`theorems.core.points.climb` maximises."""

    def violation(points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        with in_floats():
            left, right = sides(points)
            return np.asarray((right - left) / np.abs(right))

    return violation


def textbook_weights(
    problem: Problem, points: Float64[np.ndarray, "b d"], eps: float, *, again: bool = False
) -> Bounded:
    """Return softmax weights, (b, n, T), from the logits k_t·p in numbers of spacing ``eps``, as a kernel does.

    The kernel may process blocks of :data:`BLOCK` tokens or more. The error bounds of the result are the kernel's.

    Args:
        problem: the problem; only its keys are used.
        points: p, (b, d).
        eps: the distance between 1 and the next number of the kernel's format.
        again: True for the weights as the kernel's backward pass recomputes them.
    """
    unit = problem.key_scale
    with spacing(eps, EXPONENTIAL):
        logits = np.vecdot(with_rounding(problem.keys / unit), with_rounding(points * unit)[:, None, None])
        weights = softmax(logits, updates=(problem.T - 1) // BLOCK)
        return recompute_weights(weights, logits) if again else weights


def textbook_gradient(problem: Problem, s: Bounded, eps: float) -> Bounded:
    """Return ∇L, (b, d), computed from a kernel's weights s, (b, n, T), by the textbook formula, without logarithms.

    The error bounds are those of a kernel whose number format has the distance ``eps`` between 1 and the next number.
    If the kernel subtracts the largest logit where automatic differentiation sees it, the token of this logit gets the
    additional gradient −Σ_t s_t (γ_t − γᵀs), which is zero except for rounding; the error covers it. Keys, scores and
    slopes are first divided by powers of two, as is usual before calling float32 kernels, to avoid overflow.
    """
    key_unit, unit = problem.key_scale, power_of_two(problem.scores)
    with spacing(eps, EXPONENTIAL):
        keys, scores = with_rounding(problem.keys / key_unit), with_rounding(problem.scores / unit)
        f = np.sum(s * scores, axis=-1)
        c = s * (scores - f[..., None])
        stray = np.max(np.abs(keys), axis=-2) * np.sum(c, axis=-1).error[..., None]
        inner = np.einsum("bnt,ntd->bnd", c, keys).widen(stray.value + stray.error)
    outputs = f * unit
    with spacing(eps, EXPONENTIAL):
        log_slopes: Any = problem.loss.log_slope(outputs)
        largest = np.max(value_of(log_slopes), axis=-1, keepdims=True)
        largest = np.where(np.isfinite(largest), largest, 0.0)
        mean: Any = np.mean(np.exp(log_slopes - largest)[..., None] * inner, axis=1)
    return -mean * (np.exp(exact(largest)) * (unit * key_unit))


def power_of_two(x: Float64[np.ndarray, "n T"]) -> float:
    """Return the largest power of two that is at most max |x|; 1 if all are zero."""
    largest = float(np.max(np.abs(x)))
    return 2.0 ** (math.frexp(largest)[1] - 1) if largest else 1.0
