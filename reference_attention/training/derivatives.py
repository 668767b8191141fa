"""Gradient and Hessian on NumPy as fast functions of p, in differences to a reference token of each input.

The generic :func:`reference_attention.risk.scaled_gradient` handles any batch and torch. But an ODE solver, Newton's
method or a descent evaluates derivatives thousands of times on the same data, so the fixed cost of a call matters, and
the differences to the selected tokens are kept from call to call. Below, δ denotes differences to the reference token
of the input: δk_t = k_t − k_ref are the *rows*, δγ_t = γ_t − γ_ref the *gaps*, and E[δγ] = Σ_t s_t δγ_t.

References: *Max-Margin Token Selection in Attention Mechanism*, (ERM), Lemma 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.loss import Loss
from reference_attention.risk import MISSED
from reference_attention.span import Span

Point = Float64[np.ndarray, "d"]
Square = Float64[np.ndarray, "d d"]
GradientField = Callable[[Point], tuple[float, Point]]
"""A function p ↦ (log_scale, direction) with ∇L = e^{log_scale}·direction."""
NewtonField = Callable[[Point], tuple[float, Point, Square]]
"""A function p ↦ (log_scale, direction, curvature) with ∇²L = e^{log_scale}·curvature."""


FAR_BELOW = -708.0
"""Difference to the largest logit below which a token gets the softmax weight 0: its exponential would be 0, or
subnormal, which is slow."""
CANCELS = 1e-150
"""Length of a gradient's direction, in units of the longest key times the widest range of scores, below which terms
that underflowed may matter."""
NORMAL = 1e-290
"""Size below which a square may have lost digits, near the lower end of float64's normal range."""


@dataclass(frozen=True, eq=False)
class Differences:
    """Keys and scores of the other tokens minus those of the reference token of their input; batch axes ``*b``.

    Attributes:
        rows: the differences of keys k_it − k_i,ref for t ≠ ref, input by input, (*b, n·(T−1), d).
        gaps: the differences of scores γ_it − γ_i,ref, (*b, n, T−1).
        log_sizes: the logarithms of the norms of the rows, (*b, n, T−1); 0 where the row is zero.
        silent: −inf where the row is zero, and 0 elsewhere, (*b, n, T−1); added to the logarithm of a term, it removes
            the term if its row is zero.
        reference: the scores γ_i,ref of the reference tokens, (*b, n).
        tied: whether some gap is zero, so that a token scores as much as its reference token.
    """

    rows: Float64[np.ndarray, "*b m d"]
    gaps: Float64[np.ndarray, "*b n others"]
    log_sizes: Float64[np.ndarray, "*b n others"]
    silent: Float64[np.ndarray, "*b n others"]
    reference: Float64[np.ndarray, "*b n"]
    tied: bool


def differences_to(
    keys: Float64[np.ndarray, "*b n T d"],
    scores: Float64[np.ndarray, "*b n T"],
    token: Int64[np.ndarray, "*b n"],
    span: Span | None = None,
) -> Differences:
    """Return the :class:`Differences` to the given token of each input; rows are coordinates in ``span``, if given.

    The batch axes of keys, scores and tokens are those of ``token``.
    """
    *batch, n, tokens, d = keys.shape
    others = np.arange(tokens) != token[..., None]
    chosen = np.take_along_axis(keys, token[..., None, None], axis=-2)
    rows = (keys - chosen)[others].reshape(*batch, n * (tokens - 1), d)
    reference = np.take_along_axis(scores, token[..., None], axis=-1)
    gaps = (scores - reference)[others].reshape(*batch, n, tokens - 1)
    size = np.vecdot(rows, rows).reshape(gaps.shape)  # entries of at least 1e-140 square without underflow
    zero = size == 0
    return Differences(
        rows=rows if span is None else span.coordinates(rows),
        gaps=gaps,
        log_sizes=np.log(np.where(zero, 1.0, size)) / 2,
        silent=np.where(zero, -math.inf, 0.0),
        reference=reference[..., 0],
        tied=not gaps.all(),
    )


@dataclass(frozen=True, eq=False)
class Terms:
    """The quantities that gradient, Hessian and risk share at a point, or at a batch of points.

    Attributes:
        weights: softmax weights of the other tokens, (*b, n, T−1).
        log_weights: the logarithms of ``weights`` minus the ``shift`` given to :func:`terms`, (*b, n, T−1).
        outputs: the outputs γ_iᵀ s_i, (*b, n).
        log_scale: the logarithm of the largest term |ℓ'| s_t |γ_t − γᵀs| ‖row‖ / n of ∇L, minus ``shift``, (*b,); −inf
            where ∇L = 0.
        coefficients: the numbers, (*b, n, T−1), with ∇L = e^{log_scale + shift} Σ coefficients · rows.
    """

    weights: Float64[np.ndarray, "*b n others"]
    log_weights: Float64[np.ndarray, "*b n others"]
    outputs: Float64[np.ndarray, "*b n"]
    log_scale: Float64[np.ndarray, "*b"] | np.float64
    coefficients: Float64[np.ndarray, "*b n others"]


def terms(
    differences: Differences, loss: Loss, relative: Float64[np.ndarray, "*b n others"], shift: float = 0.0
) -> Terms:
    """Return the :class:`Terms` at logits ``relative + shift``, given as differences to the reference tokens' logits.

    The notation is that of the module. A shift common to all tokens is kept apart, so that it costs no digits of
    ``relative`` however large it is (adding a margin of 1e6 would cost six digits). The difference γ_t − γᵀs = δγ_t −
    E[δγ] cancels only if scores themselves nearly agree, because E[δγ] sums over the other tokens only.
    """
    weights = np.exp(relative + shift if shift else relative)
    total = 1.0 + weights.sum(axis=-1, keepdims=True)
    weights /= total
    log_weights = relative - np.log(total)
    mean = (weights * differences.gaps).sum(axis=-1)
    outputs = differences.reference + mean
    centred = differences.gaps - mean[..., None]
    with np.errstate(divide="ignore"):
        log_terms = np.log(np.abs(centred))
    if differences.tied:
        _where_scores_tie(differences, log_weights, shift, centred, log_terms)
    log_terms += log_weights
    log_terms += differences.silent
    log_terms += (loss.log_slope(outputs) - math.log(outputs.shape[-1]))[..., None]
    log_scale = (log_terms + differences.log_sizes).max(axis=(-2, -1))
    floor = np.maximum(log_scale, -1e300)  # −inf − (−inf) would be NaN
    coefficients = np.exp(log_terms - floor[..., None, None])
    return Terms(weights, log_weights, outputs, log_scale, np.copysign(coefficients, -centred))


def _where_scores_tie(
    differences: Differences,
    log_weights: Float64[np.ndarray, "*b n others"],
    shift: float,
    centred: Float64[np.ndarray, "*b n others"],
    log_centred: Float64[np.ndarray, "*b n others"],
) -> None:
    """Replace sign and logarithm of δγ_t − E[δγ] by those of −E[δγ] where δγ_t = 0 (symbols: see the module).

    The arrays ``centred`` and ``log_centred`` are changed in place. E[δγ] itself may underflow; its logarithm does not.
    """
    gaps = differences.gaps
    with np.errstate(divide="ignore"):
        logs = log_weights + np.log(np.abs(gaps))
        top = np.maximum(logs.max(axis=-1, keepdims=True), -1e300)
        total = np.copysign(np.exp(logs - top), gaps).sum(axis=-1, keepdims=True)
        log_mean = top + np.log(np.abs(total)) + shift
    ties = gaps == 0
    np.copyto(log_centred, log_mean, where=ties)
    np.copyto(centred, -total, where=ties)


def hessian(differences: Differences, loss: Loss, at: Terms) -> Square:
    """Return e^{−log_scale − shift} ∇²L at a single point, shape (d, d).

    With the notation of the module, let h_i = ∇(γ_iᵀ s_i) = Σ_t s_t (γ_t − γᵀs) δk_t and m_i = Σ_t s_t δk_t. Then ∇²L =
    (1/n) Σ_i [ℓ'' h_i h_iᵀ + ℓ' (Σ_t s_t (γ_t − γᵀs) δk_t δk_tᵀ − h_i m_iᵀ − m_i h_iᵀ)].
    """
    n, others = at.weights.shape
    rows = differences.rows
    stacked = rows.reshape(n, others, -1)
    gradients = (at.coefficients[:, None, :] @ stacked)[:, 0]
    means = (at.weights[:, None, :] @ stacked)[:, 0]
    centred = at.weights * (differences.gaps - (at.weights * differences.gaps).sum(axis=1)[:, None])
    slopes = (centred[:, None, :] @ stacked)[:, 0]
    cross = gradients.T @ means
    curved = gradients.T @ (loss.relative_curvature(at.outputs)[:, None] * slopes)
    return np.asarray((rows.T * at.coefficients.ravel()) @ rows - cross - cross.T - curved)


def cancellation_threshold(
    keys: Float64[np.ndarray, "*b n T d"], scores: Float64[np.ndarray, "*b n T"]
) -> Float64[np.ndarray, "*b"]:
    """Return the squared length of a gradient's direction above which a computation without logarithms is accurate.

    The computation uses exponentials relative to the largest term, and the result has the shape of the batch axes. A
    longer direction is correct up to roundings of its terms. This holds also for tokens that score as much as the
    selected token: for them γ_t − γᵀs = −E[δγ] is rounded like the other terms, since the selected token has at least
    the weight 1/T.
    """
    widest = np.ptp(scores, axis=-1).max(axis=-1)
    longest = np.linalg.norm(keys, axis=-1).max(axis=(-2, -1))
    return np.asarray(np.maximum((CANCELS * longest * widest) ** 2, NORMAL))


def gradient_field(
    keys: Float64[np.ndarray, "n T d"], scores: Float64[np.ndarray, "n T"], loss: Loss, span: Span | None = None
) -> GradientField:
    """Return :func:`reference_attention.risk.scaled_gradient` of one problem as a fast function of p (d,).

    If a span is given, p and the gradient are given by their coordinates in the span. Exponentials relative to the
    largest term are used where the terms do not nearly cancel, and :func:`terms` elsewhere.
    """
    at = Selected(keys, scores, span)
    least = cancellation_threshold(keys, scores).item()
    log_n = math.log(len(keys))

    def field(p: Point) -> tuple[float, Point]:
        differences, relative = at(p)
        top = float(relative.max())
        shares = np.exp(relative - top)
        largest = math.exp(top)
        total = 1.0 + largest * shares.sum(axis=1)
        mean = largest * np.vecdot(shares, differences.gaps) / total
        log_slope = loss.log_slope(differences.reference + mean)
        steepest = float(log_slope.max())
        shares *= mean[:, None] - differences.gaps
        shares *= (np.exp(log_slope - steepest) / total)[:, None]
        direction = shares.ravel() @ differences.rows
        if direction @ direction > least:
            return top + steepest - log_n, direction
        slope = terms(differences, loss, relative)
        return float(slope.log_scale), slope.coefficients.ravel() @ differences.rows

    return field


def newton_field(
    keys: Float64[np.ndarray, "n T d"], scores: Float64[np.ndarray, "n T"], loss: Loss, span: Span | None = None
) -> NewtonField:
    """Return gradient and Hessian of one problem as a function of p (d,), or of its coordinates in ``span``."""
    at = Selected(keys, scores, span)

    def field(p: Point) -> tuple[float, Point, Square]:
        differences, relative = at(p)
        slope = terms(differences, loss, relative)
        direction = slope.coefficients.ravel() @ differences.rows
        return float(slope.log_scale), direction, hessian(differences, loss, slope)

    return field


class Selected:
    """The map from p, (d,), to the differences to the tokens selected at p, and to the logits minus the selected ones.

    Args:
        keys, scores: the keys (n, T, d) and scores (n, T) of one problem.
        span: the span in which p and the rows are given by coordinates, (k,), if there is one.
    """

    def __init__(
        self, keys: Float64[np.ndarray, "n T d"], scores: Float64[np.ndarray, "n T"], span: Span | None = None
    ) -> None:
        """Store keys and scores, and flatten the keys, or their coordinates if there is a span."""
        self._keys, self._scores, self._span = np.ascontiguousarray(keys), scores, span
        # A common shift of all keys of an input does not change which token has the largest logit.
        coordinates = self._keys if span is None else span.coordinates(self._keys - self._keys[:, :1])
        self._flat = coordinates.reshape(-1, coordinates.shape[-1])
        self._selection = b""
        self.token: Int64[np.ndarray, "n"]
        self._differences: Differences

    def __call__(self, p: Point) -> tuple[Differences, Float64[np.ndarray, "n others"]]:
        """Return the differences to the tokens selected at p, and the others' logits minus those of selected tokens."""
        self._take((self._flat @ p).reshape(self._scores.shape).argmax(axis=1))
        relative = (self._differences.rows @ p).reshape(self._differences.gaps.shape)
        if relative.max() > MISSED:
            # The selection by raw logits was wrong because of cancellation: select by the differences of logits
            # instead.
            full = np.zeros(self._scores.shape)
            full[np.arange(self._scores.shape[1]) != self.token[:, None]] = relative.ravel()
            self._take(full.argmax(axis=1))
            relative = (self._differences.rows @ p).reshape(self._differences.gaps.shape)
        return self._differences, relative

    def _take(self, token: Int64[np.ndarray, "n"]) -> None:
        """Compute the differences to the given tokens, unless the last call was for the same tokens."""
        selection = token.tobytes()
        if selection != self._selection:
            self._differences = differences_to(self._keys, self._scores, token, self._span)
            self._selection, self.token = selection, token


BatchField = Callable[[Float64[np.ndarray, "b d"]], tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b d"]]]
"""A function from points p, (b, d), to the log scales, (b,), and directions, (b, d), of their gradients."""
