"""The regularization path p̄(R) = argmin of L over ‖p‖ ≤ R, accurate in its offset from the ray of p_mm.

At R = 10⁶ the direction of p̄(R) agrees with p̄_mm to 2e-13 in 1 − cos, so the path is computed as p = R p̄_mm + z with
the *offset* z as unknown: logits are R·(margins of p̄_mm) + (key differences)·z, in which the exact margins of the
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
"""Number of random unit starts per radius, besides the given ones; the objective is not convex."""

FEW_STARTS = 4
"""Number of random starts at logits beyond :data:`LARGE_LOGITS` if p_mm exists; few, since the ray and the previous
point lead to the minimiser."""

LARGE_LOGITS = 30.0
"""Value of Rκ (κ the size of the keys) above which the weights of unselected tokens are below e^{−30}, so that only
margins determine the risk."""


@dataclass(frozen=True, eq=False)
class Path:
    """The path p̄(R) at r radii.

    Attributes:
        norms: R, (r,), increasing.
        points: p̄(R), (r, d).
        log_excess: log(L(p̄(R)) − L_opt), (r,), L_opt the risk of selecting the optimal tokens exactly.
        offsets: the part of p̄(R) orthogonal to p̄_mm, (r, d), to full relative precision; NaN without p_mm.
        one_minus_cosine: 1 − cos∠(p̄(R), p̄_mm), (r,), computed from the offset; NaN without p_mm and at 0.
        interior: whether the computed minimiser lies inside the ball, (r,).
        converged: (r,), whether the point is a local minimum to rounding (a global one cannot be certified in general).
        reasons: why it did not converge, for every radius; empty where converged.
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
    starts: Float64[np.ndarray, "s d"] | None = None,
    seed: int = 0,
) -> Path:
    """Minimise the risk over ‖p‖ ≤ R for each R of ``norms``, from several starts; the lowest value wins.

    Args:
        problem: the problem.
        norms: radii, (r,), in any order; the result is sorted.
        max_margin: the solution of ATT-SVM(α), a start and the origin of the offsets; ``None`` where there is none.
        alpha: for each input the token of highest score to use if several attain it; the first one by default.
        starts: further directions to start from, (s, d).
        seed: seed of the random starts.

    Raises:
        InvalidInput: radii that are not positive and finite; an α that is not optimal.
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
    start_points = np.zeros((0, problem.d)) if starts is None else np.asarray(starts, dtype=np.float64)
    among = rng.standard_normal((RANDOM_STARTS, problem.d))
    if span is not None:
        # A component outside the span of the key differences adds to the norm and does not change the risk.
        start_points, among = span.coordinates(start_points), span.coordinates(among)
        start_points = start_points[start_points.any(axis=1)]
    start_count, directions = len(start_points), [*start_points, *among]
    minima: list[Minimum] = []
    for R in radii.tolist():
        large_logits = max_margin is not None and R * problem.key_scale > LARGE_LOGITS
        candidates = directions[: start_count + FEW_STARTS] if large_logits else directions
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
        # 1 − a/h = c²/(h(h + a)) with h² = a² + c²; h + a cancels where a < 0. A prompt of 0 has no direction.
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
    """Return points and offsets from their coordinates in the span, using p̄_mm itself in place of its projection."""
    if max_margin is None:
        return span.points(points), span.points(offsets)
    ray = span.coordinates(max_margin.direction)
    along, across = (points @ ray / (ray @ ray))[:, None], span.points(offsets)
    return along * max_margin.direction + across, across
