"""Gradients of many problems of one shape, each at its own point, computed at once with the batch as the last axis.

NumPy's loops then run over the batch, and sums over tokens are sums of whole arrays. The formulas are those of
:func:`reference_attention.training.derivatives.terms`, but with exponentials relative to the largest term in place of
logarithms; so only terms below the normal range of float64 are lost. Where the terms nearly cancel, the gradient is
computed from logarithms instead. "Rows" are the differences of keys to the key of the selected token, and T − 1 others
belong to each input.

References: *Max-Margin Token Selection in Attention Mechanism*, (ERM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.loss import Loss
from reference_attention.span import Span
from reference_attention.training.derivatives import (
    FAR_BELOW,
    cancellation_threshold,
    differences_to,
    newton_field,
    terms,
)
from reference_attention.training.wall_distance import ROOM

SMALL = 2000
"""Number of entries of the rows of one problem up to which NumPy's own loops are faster than a BLAS call per
problem."""


@dataclass(frozen=True, eq=False)
class _At:
    """The quantities that gradient and Hessian share, for b problems, each at its point.

    Attributes:
        shares: e^{logit − selected token's logit} of the T − 1 tokens of each input that are not selected, divided by
            the largest such number of the problem, (n, others, b).
        weight: the factor that turns ``shares`` into softmax weights, (n, b).
        slopes: |ℓ'| of each input relative to the problem's largest |ℓ'|, times the softmax weight of the selected
            token, (n, b).
        coefficients: the coefficients of the rows in the gradient's direction, (n, others, b).
        outputs: the outputs γ_iᵀ s_i, (n, b).
        unsure: mask of the problems whose terms nearly cancel, so that the gradient was computed from logarithms, (b,).
    """

    shares: Float64[np.ndarray, "n others b"]
    weight: Float64[np.ndarray, "n b"]
    slopes: Float64[np.ndarray, "n b"]
    coefficients: Float64[np.ndarray, "n others b"]
    outputs: Float64[np.ndarray, "n b"]
    unsure: Bool[np.ndarray, "b"]


class BatchedGradient:
    """The map from points p, (b, d), to the gradients e^{log_scale}·direction of b problems, (b,) and (b, d).

    The problems have the same shape.

    The selected token of the last call is kept wherever it still has the largest logit, so that along a descent the
    differences to its key are rarely recomputed.

    Args:
        keys: (b, n, T, d).
        scores: (b, n, T).
        loss: ℓ.
        span: the span of the rows of all problems, if points and gradients are given by their coordinates in it, (b,
            k).
    """

    def __init__(
        self,
        keys: Float64[np.ndarray, "b n T d"],
        scores: Float64[np.ndarray, "b n T"],
        loss: Loss,
        span: Span | None = None,
    ) -> None:
        """Store the data, and compute the rows with the first token of every input as the selected token."""
        b, n, tokens, d = keys.shape
        d = d if span is None else span.basis.shape[1]
        self._keys, self._scores, self._loss, self._span = keys, scores, loss, span
        self._token = np.zeros((b, n), dtype=np.int64)
        self._by_blas = n * (tokens - 1) * d > SMALL
        self._rows = np.empty((b, n, tokens - 1, d) if self._by_blas else (n, tokens - 1, d, b))
        self._gaps = np.empty((n, tokens - 1, b))
        self._log_sizes = np.empty((n, tokens - 1, b))
        self._reference = np.empty((n, b))
        self._least = cancellation_threshold(keys, scores)
        everywhere = np.indices((b, n))
        self._take(everywhere[0].ravel(), everywhere[1].ravel())

    def _take(self, b: Int64[np.ndarray, "k"], i: Int64[np.ndarray, "k"]) -> None:
        """Compute the rows of inputs i of problems b; the other tokens follow the selected token in cyclic order."""
        token = self._token[b, i]
        others = (token[:, None] + np.arange(1, self._scores.shape[2])) % self._scores.shape[2]
        rows = self._keys[b[:, None], i[:, None], others] - self._keys[b, i, token][:, None]
        if self._span is not None:
            rows = self._span.coordinates(rows)
        if self._by_blas:
            self._rows[b, i] = rows
        else:
            self._rows[i, :, :, b] = rows
        with np.errstate(divide="ignore"):
            self._log_sizes[i, :, b] = np.log(np.linalg.norm(rows, axis=-1))
        reference = self._scores[b, i, token]
        self._gaps[i, :, b] = self._scores[b[:, None], i[:, None], others] - reference[:, None]
        self._reference[i, b] = reference

    def _logits(self, p: Float64[np.ndarray, "b d"]) -> Float64[np.ndarray, "n others b"]:
        """Return the logits of the other tokens minus that of the selected token."""
        if self._by_blas:
            b, n, others, d = self._rows.shape
            return np.ascontiguousarray(np.matvec(self._rows.reshape(b, -1, d), p).T).reshape(n, others, b)
        return np.einsum("ntdb,db->ntb", self._rows, np.ascontiguousarray(p.T))

    def _reselect(
        self, p: Float64[np.ndarray, "b d"]
    ) -> tuple[Float64[np.ndarray, "n others b"], Float64[np.ndarray, "b"]]:
        """Return :meth:`_logits` and their maximum per problem, after selecting anew where another logit is larger."""
        relative = self._logits(p)
        top = relative.max(axis=(0, 1))
        if top.max() > 0:
            i, b = np.nonzero(relative.max(axis=1) > 0)
            self._token[b, i] += 1 + relative[i, :, b].argmax(axis=1)
            self._token[b, i] %= self._scores.shape[2]
            self._take(b, i)
            relative = self._logits(p)
            top = relative.max(axis=(0, 1))
        return relative, top

    def __call__(self, p: Float64[np.ndarray, "b d"]) -> tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b d"]]:
        """Return log scales and directions of the gradients at p."""
        return self._gradient(p)[:2]

    def _gradient(
        self, p: Float64[np.ndarray, "b d"]
    ) -> tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b d"], _At]:
        """Return log scales and directions of the gradients at p, and the quantities that the Hessian needs, too."""
        relative, top = self._reselect(p)
        relative -= top
        negligible = relative < FAR_BELOW
        shares = np.exp(relative, out=relative)
        if negligible.any():
            shares[negligible] = 0.0
        largest = np.exp(top)
        total = shares.sum(axis=1)
        total *= largest
        total += 1.0
        mean = largest * np.einsum("ntb,ntb->nb", shares, self._gaps) / total
        outputs = self._reference + mean
        log_slope = self._loss.log_slope(outputs)
        steepest = log_slope.max(axis=0)
        slopes = np.exp(log_slope - steepest) / total
        coefficients = shares * (mean[:, None] - self._gaps)
        coefficients *= slopes[:, None]
        if self._by_blas:
            rows = self._rows.reshape(len(p), -1, p.shape[1])
            direction = np.vecmat(np.ascontiguousarray(coefficients.reshape(-1, len(p)).T), rows)
        else:
            direction = np.einsum("ntdb,ntb->bd", self._rows, coefficients)
        log_scale = top + (steepest - math.log(len(mean)))
        unsure = ~(np.vecdot(direction, direction) > self._least)
        if unsure.any():
            log_scale[unsure], direction[unsure] = self._by_logarithms(p, unsure)
        return log_scale, direction, _At(shares, largest / total, slopes, coefficients, outputs, unsure)

    def ahead(self, p: Float64[np.ndarray, "b d"], velocity: Float64[np.ndarray, "b d"]) -> Float64[np.ndarray, "b"]:
        """Return each problem's :meth:`.wall_distance.WallDistance.arc` from p along unit vectors ``velocity``."""
        relative, rates = self._reselect(p)[0], self._logits(velocity)
        with np.errstate(divide="ignore"):
            logs = relative + self._log_sizes + np.log(np.abs(self._gaps))
        logs += self._loss.log_slope(self._reference)[:, None]
        logs, rates = logs.reshape(-1, len(p)), rates.reshape(-1, len(p))
        top = logs.argmax(axis=0)[None]
        gains = rates - np.take_along_axis(rates, top, axis=0)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            arcs = (np.take_along_axis(logs, top, axis=0) - logs + ROOM) / gains
        return np.asarray(np.where((gains > 0) & ~np.isnan(arcs), arcs, np.inf).min(axis=0))

    def newton(
        self, p: Float64[np.ndarray, "b d"]
    ) -> tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b d"], Float64[np.ndarray, "b d d"]]:
        """Return log scales, directions and curvatures at p, where ∇²L = e^{log_scale}·curvature for each problem."""
        log_scale, direction, at = self._gradient(p)
        b, d = p.shape
        rows = self._rows if self._by_blas else np.ascontiguousarray(self._rows.transpose(3, 0, 1, 2))
        stacked = np.ascontiguousarray(at.coefficients.transpose(2, 0, 1))
        gradients = np.vecmat(stacked, rows)
        means = np.vecmat(np.ascontiguousarray((at.shares * at.weight[:, None]).transpose(2, 0, 1)), rows)
        # The gradient of an output γ_iᵀ s_i is −gradient/|ℓ'|, and |ℓ'| = slope·total in units of the largest |ℓ'|,
        # where 1/total is the softmax weight of the selected token.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            output_curvature = self._loss.relative_curvature(at.outputs) * at.weight / at.slopes
        output_curvature = np.where(at.slopes > 0, output_curvature, 0.0)
        curved = gradients.mT @ (output_curvature.T[:, :, None] * gradients)
        flat = rows.reshape(b, -1, d)
        cross = gradients.mT @ means
        curvature = flat.mT @ (stacked.reshape(b, -1, 1) * flat) - cross - cross.mT + curved
        for k in np.flatnonzero(at.unsure):
            log_scale[k], direction[k], curvature[k] = newton_field(
                self._keys[k], self._scores[k], self._loss, self._span
            )(p[k])
        return log_scale, direction, curvature

    def _by_logarithms(
        self, p: Float64[np.ndarray, "b d"], mask: Bool[np.ndarray, "b"]
    ) -> tuple[Float64[np.ndarray, "k"], Float64[np.ndarray, "k d"]]:
        """Return log scales and directions of the gradients of the problems in the mask, from logarithms of terms."""
        differences = differences_to(self._keys[mask], self._scores[mask], self._token[mask], self._span)
        relative = (differences.rows @ p[mask][:, :, None]).reshape(differences.gaps.shape)
        slope = terms(differences, self._loss, relative)
        return np.asarray(slope.log_scale), np.vecmat(slope.coefficients.reshape(len(relative), -1), differences.rows)
