"""Minimisation of the risk over a ball ‖p‖ ≤ R: L-BFGS from many starts, then Newton's method on the sphere or inside.

The objective is the log excess log(L − L_opt), where L_opt is the risk if all weight is on the tokens of highest score.
The *ray* is that of p_mm, p̄_mm = p_mm/‖p_mm‖; the *offset* of a point p is its part orthogonal to p̄_mm.

References: P.-A. Absil et al., *Optimization Algorithms on Matrix Manifolds*, 2008 (Newton's method on the sphere).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64
from scipy.optimize import minimize

from reference_attention.floats import EPS
from reference_attention.paths.excess_risk import Excess, Logits
from reference_attention.problem import Problem
from reference_attention.span import Span
from reference_attention.training.derivatives import Point, newton_field

if TYPE_CHECKING:
    from reference_attention.svm.max_margin import MaxMargin

WORTHWHILE = 0.01
"""Relative distance from the lowest log excess up to which Newton's method is started at an end point of L-BFGS."""

SAME = 1e-3
"""Distance, relative to R, below which two points count as equal; the end point of L-BFGS has an error of the square
root of its tolerance."""

ROUNDING = 1e-13
"""Size of a Newton step, relative to ‖offset‖ + 1/κ (κ the largest |entry| of the keys), below which the offset is
final."""

STALLED = 1e-8
"""Size of a Newton step, relative to ‖offset‖ + 1/κ, below which steps that no longer shrink count as rounding errors;
if larger steps no longer shrink, the method has not converged."""

SHORTEST = 1e-14
"""Fraction of a Newton step below which a line search gives up. Where the weight of one token dominates the excess,
only the sphere contributes curvature. Then the minimum along the step lies where another token begins to dominate, at a
fraction of the step as small as |y|/R for the offset y."""

UNSEEN = 1e-13
"""Length of ∇ log(L − L_opt), in units of κ (the largest |entry| of the keys), below which the risk counts as flat."""

FLAT_RISK = "a token of lower score is selected: the excess does not vanish and the risk is flat to rounding"


@dataclass(frozen=True, eq=False)
class Minimum:
    """A candidate for the minimiser of the risk over the ball.

    The fields are the point, its offset from the ray of p_mm, its log excess, whether the point lies inside the ball,
    and the reason if the search did not converge.
    """

    p: Point
    offset: Point
    log_excess: float
    interior: bool
    reason: str


class BallSearch:
    """Minimisation of the risk over a ball; points are given by coordinates in ``span`` if a span is given."""

    def __init__(
        self,
        problem: Problem,
        chosen: Int64[np.ndarray, "n"],
        max_margin: MaxMargin | None,
        span: Span | None = None,
    ) -> None:
        """Store the problem and the chosen tokens of highest score; express the ray of p_mm, if any, in the span."""
        self.problem, self._chosen, self._max_margin = problem, chosen, max_margin
        self._excess = Excess(problem, chosen, span)
        self._newton_at = newton_field(problem.keys, problem.scores, problem.loss, span)
        self._scale = self._excess.scale
        self._d = problem.d if span is None else span.basis.shape[1]
        self._ray = None if max_margin is None else max_margin.direction
        if self._ray is not None and span is not None:
            ray = span.coordinates(self._ray)
            self._ray = ray / np.linalg.norm(ray)

    def best(self, R: float, directions: list[Point], previous: Minimum | None) -> Minimum:
        """Return the lowest minimum that is reached from the ray of p_mm, from ``previous`` and from ``directions``."""
        candidates = []
        if self._ray is not None:
            candidates.append(self._newton(R, self._ray, np.zeros_like(self._ray), self._exact_margins(R)))
        if previous is not None:
            candidates.append(previous if previous.interior else self._polish(R, previous.p))
        candidates.append(self._inside(R, np.zeros(self._d)))
        minima = [m for m in candidates if m is not None]
        for start in directions:
            rough, value = self._on_sphere(R, start / float(np.linalg.norm(start)))
            # Newton's method lowers the value only little, so it is run only from new points whose value is near the
            # lowest one.
            lowest_yet = min((m.log_excess for m in minima), default=math.inf)
            near = value < lowest_yet + WORTHWHILE * (1 + abs(lowest_yet)) or not minima
            if near and all(np.linalg.norm(m.p - rough) > SAME * R for m in minima):
                minima.append(self._polish(R, rough))
        lowest = min(minima, key=lambda m: m.log_excess)
        if not lowest.interior and self._slope(lowest.p) @ lowest.p > 0:
            inside = self._inside(R, lowest.p)
            if inside is not None and inside.log_excess <= lowest.log_excess:
                return inside
            return replace(lowest, reason="the risk decreases inwards, but no minimiser inside the ball was found")
        close = [m for m in minima if not m.reason and m.log_excess <= lowest.log_excess + self._noise(lowest)]
        return close[0] if close else lowest

    def _noise(self, m: Minimum) -> float:
        """Return a bound of the error of m's log excess that is caused by the rounding of logits."""
        return 64 * EPS * (1 + abs(m.log_excess) + self._scale * float(np.linalg.norm(m.p)))

    def _slope(self, p: Point) -> Point:
        """Return ∇ log(L − L_opt) at p."""
        return self._excess.value_and_slope(p)[1]

    def _exact_margins(self, R: float) -> Logits:
        """Return the logits at R p̄_mm minus those of the chosen tokens, as (relative, shift).

        The logit differences are relative + shift, where ``relative`` is exactly 0 at SVM-neighbours.
        """
        assert self._max_margin is not None
        solution = self._max_margin
        others = np.arange(self.problem.T) != self._chosen[:, None]
        beyond = np.where(solution.neighbours, 0.0, solution.margins - 1.0)[others].reshape(self.problem.n, -1)
        return -R * solution.margin * beyond, -R * solution.margin

    def _on_sphere(self, R: float, start: Point) -> tuple[Point, float]:
        """Return a rough minimiser on the sphere ‖p‖ = R, found by L-BFGS from ``start``, and its log excess."""

        def objective(x: Point) -> tuple[float, Point]:
            size = math.sqrt(x @ x)
            unit = x / size
            value, slope = self._excess.value_and_slope(R * unit)
            if value == -math.inf:
                return -1e300, np.zeros_like(x)
            # Divide by R, because L-BFGS is not invariant under scaling of the objective.
            return value / (R * self._scale), (slope - (slope @ unit) * unit) / (size * self._scale)

        optimum = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 60})
        p = R * optimum.x / np.linalg.norm(optimum.x)
        return p, float(optimum.fun) * R * self._scale

    def _inside(self, R: float, start: Point) -> Minimum | None:
        """Return a minimiser inside the ball ‖p‖ < R, if L-BFGS reaches one from ``start``; otherwise None."""

        def objective(x: Point) -> tuple[float, Point]:
            if math.sqrt(x @ x) >= 2 * R * self._scale:
                raise _LeftTheBall
            value, slope = self._excess.value_and_slope(x / self._scale)
            return (value, slope / self._scale) if value > -math.inf else (-1e300, np.zeros_like(x))

        options = {"maxiter": 500, "ftol": 1e-15, "gtol": 1e-10}
        try:
            optimum = minimize(objective, start * self._scale, jac=True, method="L-BFGS-B", options=options)
        except _LeftTheBall:
            return None
        p, reason = self._interior_newton(optimum.x / self._scale)
        if np.linalg.norm(p) >= R:
            return None
        return Minimum(p, self._across(p), self._excess.value_and_slope(p)[0], True, reason)

    def _interior_newton(self, p: Point) -> tuple[Point, str]:
        """Return the local minimiser of the risk next to p and an empty text, or p and the reason if there is none.

        On a plateau, where the gradient vanishes as fast as the curvature, Newton's steps do not shrink.
        """
        point = p
        for _ in range(30):
            log_scale, direction, curvature = self._newton_at(point)
            if log_scale == -math.inf:
                return point, ""
            values, vectors = np.linalg.eigh(curvature)
            significant = values > np.abs(values).max() * 1e-13
            step = -vectors[:, significant] @ ((vectors[:, significant].T @ direction) / values[significant])
            point = point + step
            if not np.linalg.norm(point - p) * self._scale <= 1:
                return p, FLAT_RISK
            if np.linalg.norm(step) * self._scale <= 1e-11 * (1 + float(np.linalg.norm(point)) * self._scale):
                saddle = values[0] < -1e-9 * values[-1]
                return (p, "the stationary point inside the ball is no minimum") if saddle else (point, "")
        return p, "Newton's method did not converge inside the ball"

    def _polish(self, R: float, rough: Point) -> Minimum:
        """Run Newton's method on the sphere from a rough minimiser, with offsets from the ray of p_mm if it is near."""
        unit = rough / np.linalg.norm(rough)
        if self._ray is not None and unit @ self._ray > 0.9:
            near = self._newton(R, self._ray, self._across(R * unit), self._exact_margins(R))
            if near is not None and not near.reason:
                return near
        relative = R * (self._excess.differences.rows @ unit).reshape(self._excess.differences.gaps.shape)
        shift = float(relative.max())
        polished = self._newton(R, unit, np.zeros_like(unit), (relative - shift, shift))
        if polished is None:
            value = self._excess.value_and_slope(R * unit)[0]
            return Minimum(R * unit, self._across(R * unit), value, False, FLAT_RISK)
        return polished

    def _newton(self, R: float, unit: Point, offset: Point, logits: Logits) -> Minimum | None:
        """Run Newton's method for log(L − L_opt) on the sphere ‖p‖ = R, in the offset y.

        The points are p = ρ unit + y with y orthogonal to ``unit`` and ρ² + |y|² = R².

        Args:
            R: the radius R.
            unit: a unit vector, from which offsets are measured.
            offset: the first offset y.
            logits: the logits at R·unit minus those of the chosen tokens, as (relative, shift), see :data:`.Logits`.
        """
        basis = _complement(unit)
        y = basis.T @ offset
        state = self._excess.on_sphere(R, unit, basis, y, logits)
        if state is None:
            return None
        reason = "Newton's method did not converge"
        last = math.inf
        for _ in range(100):
            value, slope, curvature = state
            step = _descent_step(slope, curvature)
            size = float(np.linalg.norm(step)) * self._scale
            reach = 1 + float(np.linalg.norm(y)) * self._scale
            # Steps below STALLED that no longer shrink are rounding errors, amplified because the curvature of the
            # sphere is weak.
            if size <= ROUNDING * reach or (size <= STALLED * reach and size >= last / 2):
                reason = ""
                break
            length, next_state = 1.0, None
            while length > SHORTEST:
                trial = y + length * step
                if trial @ trial < (R * (1 - 1e-12)) ** 2:
                    next_state = self._excess.on_sphere(R, unit, basis, trial, logits)
                    noise = 64 * EPS * (1 + abs(value))
                    if next_state is not None and next_state[0] <= value + 1e-4 * length * (slope @ step) + noise:
                        break
                    next_state = None
                length /= 2
            if next_state is None:
                reason = "" if size <= STALLED * reach else "Newton's method found no descent"
                break
            y, state, last = y + length * step, next_state, size
        across = basis @ y
        p = math.sqrt(R * R - y @ y) * unit + across
        if float(np.linalg.norm(self._slope(p))) <= UNSEEN * self._scale:
            # A token of lower score is selected, so L − L_opt does not vanish, and has the same digits at neighbouring
            # points.
            reason = FLAT_RISK
        # If offsets are measured from the ray of p_mm, the offset is known to full relative precision.
        return Minimum(p, across if unit is self._ray else self._across(p), state[0] + logits[1], False, reason)

    def _across(self, p: Point) -> Point:
        """Return the part of p orthogonal to p̄_mm, projected twice for accuracy; NaN if there is no p_mm."""
        if self._ray is None:
            return np.full_like(p, math.nan)
        across = p - (p @ self._ray) * self._ray
        return np.asarray(across - (across @ self._ray) * self._ray)


class _LeftTheBall(Exception):
    """Exception raised if L-BFGS leaves the ball of twice the radius, in which interior minimisers are searched for."""


def _complement(unit: Point) -> Float64[np.ndarray, "d d-1"]:
    """Return an orthonormal basis, as columns, of the orthogonal complement of a unit vector."""
    return np.linalg.qr(np.column_stack([unit, np.eye(len(unit))]))[0][:, 1:]


def _descent_step(slope: Float64[np.ndarray, "e"], curvature: Float64[np.ndarray, "e e"]) -> Float64[np.ndarray, "e"]:
    """Return the Newton step for the gradient ``slope`` and the Hessian ``curvature`` with its eigenvalues positive."""
    if not slope.size:
        return slope
    values, vectors = np.linalg.eigh(curvature)
    floor = 1e-15 * float(np.abs(values).max()) or 1.0
    return np.asarray(-vectors @ ((vectors.T @ slope) / np.maximum(np.abs(values), floor)))
