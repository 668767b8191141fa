"""The log excess risk log(L − L_opt) with gradient and Hessian, as a function of p or of the offset of p from a ray.

L_opt is the risk if all weight is on the tokens of highest score. Far from the origin the rounding of p is too coarse,
but the offset, the part of p orthogonal to the ray, keeps all digits.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.problem import Problem
from reference_attention.span import Span
from reference_attention.training.derivatives import Point, Selected, differences_to, hessian, terms

NEGLIGIBLE = -40.0
"""If all outputs are so close to the highest scores that the logarithms of the distances are below this number, the
excess risk is linear in the distances up to rounding."""

LARGEST_EXPONENT = 600.0
"""Largest exponent x for which e^x is computed; beyond it, products of e^x with other numbers may overflow."""

Logits = tuple[Float64[np.ndarray, "n others"], float]
"""Logits of the other tokens minus those of the chosen tokens, as (relative, shift): the differences are relative +
shift."""


class Excess:
    """The excess L − L_opt of the risk over the risk if all weight is on the tokens of highest score.

    Args:
        problem: keys, scores and loss.
        chosen: the index of a token of highest score of each input, (n,).
        span: the span in which points and gradients are given by coordinates, if there is one.

    Attributes:
        scale: the largest |entry| of the keys, with which lengths of gradients are compared.
    """

    def __init__(self, problem: Problem, chosen: Int64[np.ndarray, "n"], span: Span | None = None) -> None:
        """Compute the differences to the chosen tokens, the largest |entry| of the keys, and the highest scores."""
        self.problem = problem
        self.differences = differences_to(problem.keys, problem.scores, chosen, span)
        self.scale = float(np.abs(problem.keys).max()) or 1.0
        self._best = problem.scores[np.arange(problem.n), chosen]
        self._selected = Selected(problem.keys, problem.scores, span)

    def value_and_slope(self, p: Point) -> tuple[float, Point]:
        """Return the log excess and its gradient, whatever tokens are selected at p."""
        differences, relative = self._selected(p)
        at = terms(differences, self.problem.loss, relative)
        # The output falls short of the highest score γ_best by Σ_t s_t (γ_best − γ_t), a sum that includes the selected
        # token.
        score_gaps = self._best - differences.reference
        log_selected = -np.log1p(np.exp(relative).sum(axis=1))
        with np.errstate(divide="ignore"):
            logs = at.log_weights + np.log(score_gaps[:, None] - differences.gaps)
            log_gap = np.logaddexp(_logsumexp(logs), log_selected + np.log(score_gaps))
        value = _log_excess(self.problem, self._best, log_gap, 0.0)
        if value == -math.inf:
            return value, np.zeros_like(p)
        log_factor = min(float(at.log_scale) - value, LARGEST_EXPONENT)
        return value, math.exp(log_factor) * (at.coefficients.ravel() @ differences.rows)

    def on_sphere(
        self,
        R: float,
        unit: Point,
        basis: Float64[np.ndarray, "d e"],
        y: Float64[np.ndarray, "e"],
        logits: tuple[Float64[np.ndarray, "n others"], float],
    ) -> tuple[float, Float64[np.ndarray, "e"], Float64[np.ndarray, "e e"]] | None:
        """Return the log excess minus the shift of ``logits``, its gradient and its Hessian, as functions of offsets y.

        The point is p = ρ unit + basis·y with ρ² + |y|² = R².

        Args:
            R: the radius R.
            unit: a unit vector, (d,).
            basis: an orthonormal basis of the orthogonal complement of ``unit``, as columns, (d, e).
            y: the offset, (e,).
            logits: the logits at R·unit minus those of the chosen tokens, as (relative, shift), see :data:`Logits`.

        Returns:
            The value, the gradient, (e,), and the Hessian, (e, e); None if an exponential overflows or the gradient is
                zero.
        """
        differences, loss = self.differences, self.problem.loss
        along = math.sqrt(R * R - y @ y)
        z = basis @ y - ((y @ y) / (R + along)) * unit
        relative = logits[0] + (differences.rows @ z).reshape(differences.gaps.shape)
        shift = logits[1]
        if relative.max() + shift > LARGEST_EXPONENT:
            return None
        at = terms(differences, loss, relative, shift)
        with np.errstate(divide="ignore"):
            log_gap = _logsumexp(at.log_weights + np.log(np.abs(differences.gaps)))
        value = _log_excess(self.problem, differences.reference, log_gap, shift)
        if at.log_scale == -math.inf or value == -math.inf or at.log_scale - value > LARGEST_EXPONENT:
            return None
        factor = math.exp(at.log_scale - value)
        slope = factor * (at.coefficients.ravel() @ differences.rows)
        curvature = factor * hessian(differences, loss, at) - np.outer(slope, slope)
        # As p = ρ unit + basis·y, dp/dy = basis − unit yᵀ/ρ, and the second derivative of p along unit is −(I/ρ + y
        # yᵀ/ρ³).
        jacobian = basis - np.outer(unit, y / along)
        bend = (np.eye(len(y)) + np.outer(y, y) / along**2) / along
        return value, jacobian.T @ slope, jacobian.T @ curvature @ jacobian - float(unit @ slope) * bend


def _logsumexp(logs: Float64[np.ndarray, "n others"]) -> Float64[np.ndarray, "n"]:
    top = np.maximum(logs.max(axis=1), -1e300)  # −inf − (−inf) would be NaN
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)))


def _log_excess(
    problem: Problem, best: Float64[np.ndarray, "n"], lost: Float64[np.ndarray, "n"], shift: float
) -> float:
    """Return log(L − L_opt) − shift, where e^{lost + shift} is each input's highest score ``best`` minus its output."""
    if lost.max() + shift < NEGLIGIBLE:
        each = problem.loss.log_slope(best) + lost
    else:
        each = problem.loss.log_excess(best, np.ones_like(lost), lost + shift)[1] - shift
    top = max(float(each.max()), -1e300)
    total = float(np.exp(each - top).sum())
    return top + math.log(total / problem.n) if total > 0 else -math.inf
