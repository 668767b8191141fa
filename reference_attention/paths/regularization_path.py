"""The regularization path p̄(R), the minimiser of L over ‖p‖ ≤ R, accurate in its offset from the ray of p_mm.

At R = 10⁶ the direction of p̄(R) agrees with p̄_mm = p_mm/‖p_mm‖ to 2e-13 in 1 − cos, so a rounded p̄(R) would not show
the difference. The path is therefore computed as p = R p̄_mm + z with the *offset* z as unknown. Logit differences are
then R times the margins of p̄_mm plus products of key differences with z, and the exactly equal margins of the
SVM-neighbours cancel.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; Riemannian Newton on the sphere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.errors import InvalidInput
from reference_attention.paths.ball_search import BallSearch, Minimum
from reference_attention.problem import Problem
from reference_attention.span import Span, span_of

if TYPE_CHECKING:
    from reference_attention.svm.max_margin import MaxMargin

RANDOM_STARTS = 16
"""Number of random directions to start from per radius, besides the given ones; the risk is not convex."""

FEW_STARTS = 4
"""Number of random directions to start from if Rκ exceeds :data:`LARGE_LOGITS` and p_mm exists. Few suffice, since
starts on the ray of p_mm and at the previous point lead to the minimiser."""

LARGE_LOGITS = 30.0
"""Value of Rκ (κ about the largest |entry| of the keys) above which the weights of unselected tokens are below e^{−30},
so that only margins determine the risk."""


@dataclass(frozen=True, eq=False)
class Path:
    """The regularization path p̄(R) at r radii.

    Attributes:
        norms: the radii R, increasing, (r,).
        points: the minimisers p̄(R), (r, d).
        log_excess: log(L(p̄(R)) − L_opt), (r,), where L_opt is the risk if all weight is on the optimal tokens.
        offsets: the part of p̄(R) orthogonal to p̄_mm, to full relative precision, (r, d); NaN if there is no p_mm.
        one_minus_cosine: 1 − cos of the angle between p̄(R) and p̄_mm, computed from the offset, (r,); NaN if there is
            no p_mm or p̄(R) = 0.
        interior: whether the computed minimiser lies inside the ball, (r,).
        converged: whether the point is a local minimum up to rounding, (r,); that it is a global one cannot be
            certified in general.
        reasons: for every radius, the reason if the search did not converge; empty if it did.
    """

    norms: Float64[np.ndarray, "r"]
    points: Float64[np.ndarray, "r d"]
    log_excess: Float64[np.ndarray, "r"]
    offsets: Float64[np.ndarray, "r d"]
    one_minus_cosine: Float64[np.ndarray, "r"]
    interior: Bool[np.ndarray, "r"]
    converged: Bool[np.ndarray, "r"]
    reasons: tuple[str, ...]


def regularization_path(
    problem: Problem,
    norms: Sequence[float] | Float64[np.ndarray, "r"],
    *,
    max_margin: MaxMargin | None = None,
    alpha: Int64[np.ndarray, "n"] | None = None,
    seed: int = 0,
) -> Path:
    """Minimise the risk over ‖p‖ ≤ R for each R of ``norms``, from several starts, and keep the lowest minimum.

    Args:
        problem: keys, scores and loss.
        norms: the radii R, (r,), in any order; the result is sorted.
        max_margin: the solution p_mm of ATT-SVM(α), from whose ray offsets are measured and on whose ray a search
            starts; ``None`` if there is no solution.
        alpha: the token of highest score of each input, which matters if several have the highest score; by default the
            first of them.
        seed: seed of the random starts.

    Raises:
        InvalidInput: a radius is not positive and finite, or a token α_i does not have the highest score.
    """
    radii = np.unique(np.asarray(norms, dtype=np.float64))
    if radii.size == 0 or not np.isfinite(radii).all() or (radii <= 0).any():
        raise InvalidInput("norms: radii must be positive and finite; give a list of numbers.")
    chosen = problem.optimal if alpha is None else np.asarray(alpha)
    if chosen.shape != (problem.n,) or (problem.gaps(chosen) < 0).any():
        raise InvalidInput("alpha: the path is relative to tokens of highest score; give one such token per input.")
    span = span_of(problem.keys)
    search = BallSearch(problem, chosen, max_margin, span)
    rng = np.random.default_rng(seed)
    among = rng.standard_normal((RANDOM_STARTS, problem.d))
    if span is not None:
        # A component outside the span of the key differences adds to the norm and does not change the risk.
        among = span.coordinates(among)
    directions = [*among]
    minima: list[Minimum] = []
    for R in radii.tolist():
        large_logits = max_margin is not None and R * problem.key_scale > LARGE_LOGITS
        candidates = directions[:FEW_STARTS] if large_logits else directions
        minima.append(search.best(R, candidates, minima[-1] if minima else None))
    unit = None if max_margin is None else max_margin.direction
    points = np.array([m.p for m in minima])
    offsets = np.array([m.offset for m in minima])
    if span is not None:
        points, offsets = _expanded(span, points, offsets, max_margin)
    if unit is None:
        one_minus = np.full(len(radii), math.nan)
    else:
        along, across = points @ unit, np.linalg.norm(offsets, axis=1)
        size = np.hypot(along, across)
        # With a = along, c = across and h² = a² + c², 1 − cos = 1 − a/h = c²/(h(h + a)); h + a cancels where a < 0. A
        # prompt of 0 has no direction.
        with np.errstate(invalid="ignore"):
            one_minus = np.where(along > 0, across**2 / (size * (size + along)), 1 - along / size)
    return Path(
        norms=radii,
        points=points,
        log_excess=np.array([m.log_excess for m in minima]),
        offsets=offsets,
        one_minus_cosine=one_minus,
        interior=np.array([m.interior for m in minima]),
        converged=np.array([not m.reason for m in minima]),
        reasons=tuple(m.reason for m in minima),
    )


def _expanded(
    span: Span,
    points: Float64[np.ndarray, "r k"],
    offsets: Float64[np.ndarray, "r k"],
    max_margin: MaxMargin | None,
) -> tuple[Float64[np.ndarray, "r d"], Float64[np.ndarray, "r d"]]:
    """Return points and offsets, given by coordinates in the span, in R^d, with p̄_mm in place of its projection."""
    if max_margin is None:
        return span.points(points), span.points(offsets)
    ray = span.coordinates(max_margin.direction)
    along, across = (points @ ray / (ray @ ray))[:, None], span.points(offsets)
    return along * max_margin.direction + across, across
