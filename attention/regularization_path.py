"""The regularization path p̄(R) = argmin of L over ‖p‖ ≤ R, accurate in its offset from the ray of p_mm.

At R = 10⁶ the direction of p̄(R) agrees with p̄_mm to 2e-13 in 1 − cos, so the path is computed as
p = R p̄_mm + z with the *offset* z as unknown: logits are R·(margins of p̄_mm) + (key differences)·z, in which the
exact margins of the SVM-neighbours drop out.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; Riemannian Newton on the sphere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import minimize

from attention.derivatives import Point, Selected, differences_to, hessian, newton_field, terms
from attention.errors import InvalidInput
from attention.problem import Problem

if TYPE_CHECKING:
    from attention.max_margin import MaxMargin

RANDOM_STARTS = 16
"""Random unit starts per radius, beside the given ones; the objective is not convex."""

FEW_STARTS = 4
"""Random starts at logits beyond :data:`LARGE_LOGITS` where p_mm exists: the ray and the path so far lead there."""

LARGE_LOGITS = 30.0
"""R κ from which on softmax weights e^{−30} leave little of the landscape but the margins."""

WORTHWHILE = 0.01
"""How far, relatively, L-BFGS may end above the lowest log excess for Newton to continue from there."""

SAME = 1e-3
"""Directions this close are in the same valley: L-BFGS leaves an error of the square root of its tolerance."""

NEGLIGIBLE = -40.0
"""Below e^{−40} the excess risk equals slope times unselected weight to rounding."""

LARGEST_EXPONENT = 600.0
"""Beyond e^600 products of two exponentials overflow."""

ROUNDING = 1e-13
"""Newton steps this small, relative to offset plus 1/κ, no longer change the offset."""

STALLED = 1e-8
"""Newton steps this small that no longer shrink are rounding too; a larger one means that it has not converged."""

UNSEEN = 1e-13
"""Slope of log(L − L_opt), per 1/κ, that is rounding: the risk is flat there."""

FLAT_RISK = "a token of lower score is selected: the excess does not vanish and the risk is flat to rounding"

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Path:
    """p̄(R) at r radii.

    Attributes:
        norms: R, (r,), increasing.
        points: p̄(R), (r, d).
        log_excess: log(L(p̄(R)) − L_opt), (r,), L_opt the risk of selecting the optimal tokens exactly.
        offsets: the part of p̄(R) orthogonal to p̄_mm, (r, d), to full relative precision; NaN without p_mm.
        one_minus_cosine: 1 − cos∠(p̄(R), p̄_mm), (r,), computed from the offset; NaN without p_mm.
        interior: (r,), whether the minimiser found lies inside the ball.
        converged: (r,), whether it is a local minimum to rounding (global ones cannot be certified in general).
        reasons: why not, for every radius; empty where converged.
    """

    norms: Float64[np.ndarray, "r"]
    points: Float64[np.ndarray, "r d"]
    log_excess: Float64[np.ndarray, "r"]
    offsets: Float64[np.ndarray, "r d"]
    one_minus_cosine: Float64[np.ndarray, "r"]
    interior: Bool[np.ndarray, "r"]
    converged: Bool[np.ndarray, "r"]
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Minimum:
    """A candidate for p̄(R)."""

    p: Point
    offset: Point
    log_excess: float
    interior: bool
    reason: str


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
        norms: radii, (r,), in any order; the result is sorted.
        max_margin: the solution of ATT-SVM(α), a start and the origin of the offsets; ``None`` where there is none.
        alpha: tokens of highest score, where several attain it; the first ones by default.
        starts: further directions to start from, (s, d).
        seed: drives the random starts.

    Raises:
        InvalidInput: radii that are not positive and finite; an α that is not optimal.
    """
    radii = np.unique(np.asarray(norms, dtype=np.float64))
    if radii.size == 0 or not np.isfinite(radii).all() or (radii <= 0).any():
        raise InvalidInput("norms: radii must be positive and finite; give a list of numbers.")
    chosen = problem.optimal if alpha is None else np.asarray(alpha)
    if chosen.shape != (problem.n,) or (problem.gaps(chosen) < 0).any():
        raise InvalidInput("alpha: the path is relative to the tokens of highest score; give one of those per input.")
    search = _Search(problem, chosen, max_margin)
    rng = np.random.default_rng(seed)
    directions = [] if starts is None else [np.asarray(x, dtype=np.float64) for x in starts]
    given = len(directions)
    directions += list(rng.standard_normal((RANDOM_STARTS, problem.d)))
    found: list[_Minimum] = []
    for R in radii.tolist():
        few = max_margin is not None and R * problem.key_scale > LARGE_LOGITS
        tried = directions[: given + FEW_STARTS] if few else directions
        found.append(search.best(R, tried, found[-1] if found else None))
    unit = None if max_margin is None else max_margin.direction
    points = np.array([m.p for m in found])
    offsets = np.array([m.offset for m in found])
    along = None if unit is None else points @ unit
    if along is None:
        one_minus = np.full(len(radii), math.nan)
    else:
        across = np.linalg.norm(offsets, axis=1)
        # 1 − cos = tan²-free form of across/along: 1 − a/h = c²/(h(h + a)), h² = a² + c².
        size = np.hypot(along, across)
        one_minus = np.where(along > 0, across**2 / (size * (size + along)), 1 - along / np.where(size > 0, size, 1))
    return Path(
        norms=radii,
        points=points,
        log_excess=np.array([m.log_excess for m in found]),
        offsets=offsets,
        one_minus_cosine=one_minus,
        interior=np.array([m.interior for m in found]),
        converged=np.array([not m.reason for m in found]),
        reasons=tuple(m.reason for m in found),
    )


class _Search:
    """Minimisation over one sphere or ball."""

    def __init__(self, problem: Problem, chosen: Int64[np.ndarray, "n"], max_margin: MaxMargin | None) -> None:
        self.problem, self._chosen, self._max_margin = problem, chosen, max_margin
        self.differences = differences_to(problem.keys, problem.scores, chosen)
        self._selected = Selected(problem.keys, problem.scores)
        self._newton_at = newton_field(problem.keys, problem.scores, problem.loss)
        self._best = problem.scores[np.arange(problem.n), chosen]
        self._scale = float(np.abs(problem.keys).max()) or 1.0

    def best(self, R: float, directions: list[Point], previous: _Minimum | None) -> _Minimum:
        """The lowest minimum found from the ray of p_mm, the previous minimum and ``directions``."""
        candidates = []
        if self._max_margin is not None:
            unit = self._max_margin.direction
            candidates.append(self._newton(R, unit, np.zeros_like(unit), self._exact_margins(R)))
        if previous is not None:
            candidates.append(previous if previous.interior else self._polished(R, previous.p))
        candidates.append(self._inside(R, np.zeros(self.problem.d)))
        found = [m for m in candidates if m is not None]
        for start in directions:
            rough, value = self._on_sphere(R, start / float(np.linalg.norm(start)))
            # Newton gains little over L-BFGS: only what comes near the lowest value, elsewhere, is worth it.
            lowest_yet = min((m.log_excess for m in found), default=math.inf)
            near = value < lowest_yet + WORTHWHILE * (1 + abs(lowest_yet)) or not found
            if near and all(np.linalg.norm(m.p - rough) > SAME * R for m in found):
                found.append(self._polished(R, rough))
        lowest = min(found, key=lambda m: m.log_excess)
        if not lowest.interior and self._slope(lowest.p) @ lowest.p > 0:
            inside = self._inside(R, lowest.p)
            if inside is not None and inside.log_excess <= lowest.log_excess:
                return inside
            return replace(lowest, reason="the risk falls inwards, but no minimiser inside was found")
        close = [m for m in found if not m.reason and m.log_excess <= lowest.log_excess + self._noise(lowest)]
        return close[0] if close else lowest

    def _noise(self, m: _Minimum) -> float:
        """Differences of log excess that rounding can make: that of a logit."""
        return 64 * EPS * (1 + abs(m.log_excess) + self._scale * float(np.linalg.norm(m.p)))

    def _value_and_slope(self, p: Point) -> tuple[float, Point]:
        """log excess and its gradient, whatever tokens are selected at p."""
        differences, relative = self._selected(p)
        at = terms(differences, self.problem.loss, relative)
        # δ_i = Σ_t s_t (γ_best − γ_t), the selected token among them.
        behind = self._best - differences.reference
        log_selected = -np.log1p(np.exp(relative).sum(axis=1))
        with np.errstate(divide="ignore"):
            logs = at.log_weights + np.log(behind[:, None] - differences.gaps)
            lost = np.logaddexp(_logsumexp(logs), log_selected + np.log(behind))
        value = _log_excess(self.problem, self._best, lost, 0.0)
        if value == -math.inf:
            return value, np.zeros_like(p)
        log_factor = min(float(at.log_scale) - value, LARGEST_EXPONENT)
        return value, math.exp(log_factor) * (at.coefficients.ravel() @ differences.rows)

    def _slope(self, p: Point) -> Point:
        return self._value_and_slope(p)[1]

    def _exact_margins(self, R: float) -> tuple[Float64[np.ndarray, "n others"], float]:
        """Logits of R p̄_mm relative to the chosen tokens, as (relative, shift): the neighbours' are 0 + shift."""
        assert self._max_margin is not None
        found = self._max_margin
        others = np.arange(self.problem.T) != self._chosen[:, None]
        beyond = np.where(found.neighbours, 0.0, found.margins - 1.0)[others].reshape(self.problem.n, -1)
        return -R * found.margin * beyond, -R * found.margin

    def _on_sphere(self, R: float, start: Point) -> tuple[Point, float]:
        """A rough minimiser on the sphere, with its log excess."""

        def objective(x: Point) -> tuple[float, Point]:
            size = math.sqrt(x @ x)
            unit = x / size
            value, slope = self._value_and_slope(R * unit)
            if value == -math.inf:
                return -1e300, np.zeros_like(x)
            # Divided by R: L-BFGS is not invariant under scaling.
            return value / (R * self._scale), (slope - (slope @ unit) * unit) / (size * self._scale)

        found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 60})
        p = R * found.x / np.linalg.norm(found.x)
        return p, float(found.fun) * R * self._scale

    def _inside(self, R: float, start: Point) -> _Minimum | None:
        """A minimiser of the risk inside the ball, if L-BFGS finds one from ``start``."""

        def objective(x: Point) -> tuple[float, Point]:
            if math.sqrt(x @ x) >= 2 * R * self._scale:
                raise _LeftTheBall
            value, slope = self._value_and_slope(x / self._scale)
            return (value, slope / self._scale) if value > -math.inf else (-1e300, np.zeros_like(x))

        options = {"maxiter": 500, "ftol": 1e-15, "gtol": 1e-10}
        try:
            found = minimize(objective, start * self._scale, jac=True, method="L-BFGS-B", options=options)
        except _LeftTheBall:
            return None
        p, reason = self._interior_newton(found.x / self._scale)
        if np.linalg.norm(p) >= R:
            return None
        return _Minimum(p, self._across(p), self._value_and_slope(p)[0], True, reason)

    def _interior_newton(self, p: Point) -> tuple[Point, str]:
        """The local minimum of the risk next to p, or p and the reason why there is none: on a plateau, where the
        slope vanishes as fast as the curvature, Newton's steps do not shrink.
        """
        found = p
        for _ in range(30):
            log_scale, direction, curvature = self._newton_at(found)
            if log_scale == -math.inf:
                return found, ""
            values, vectors = np.linalg.eigh(curvature)
            seen = values > np.abs(values).max() * 1e-13
            step = -vectors[:, seen] @ ((vectors[:, seen].T @ direction) / values[seen])
            found = found + step
            if not np.linalg.norm(found - p) * self._scale <= 1:
                return p, FLAT_RISK
            if np.linalg.norm(step) * self._scale <= 1e-11 * (1 + float(np.linalg.norm(found)) * self._scale):
                saddle = values[0] < -1e-9 * values[-1]
                return (p, "the point of rest inside is no minimum") if saddle else (found, "")
        return p, "Newton's method did not converge inside"

    def _across(self, p: Point) -> Point:
        if self._max_margin is None:
            return np.full_like(p, math.nan)
        unit = self._max_margin.direction
        across = p - (p @ unit) * unit
        return np.asarray(across - (across @ unit) * unit)

    def _polished(self, R: float, rough: Point) -> _Minimum:
        """Newton from a rough minimiser; in offsets from the ray of p_mm where that is near."""
        unit = rough / np.linalg.norm(rough)
        if self._max_margin is not None and unit @ self._max_margin.direction > 0.9:
            offset = self._across(R * unit)
            near = self._newton(R, self._max_margin.direction, offset, self._exact_margins(R))
            if near is not None and not near.reason:
                return near
        relative = R * (self.differences.rows @ unit).reshape(self.differences.gaps.shape)
        shift = float(relative.max())
        found = self._newton(R, unit, np.zeros_like(unit), (relative - shift, shift))
        if found is None:
            value = self._value_and_slope(R * unit)[0]
            return _Minimum(R * unit, self._across(R * unit), value, False, FLAT_RISK)
        return found

    def _newton(
        self, R: float, unit: Point, offset: Point, logits: tuple[Float64[np.ndarray, "n others"], float]
    ) -> _Minimum | None:
        """Newton's method for log(L − L_opt) on the sphere, in the offset y ⟂ unit: p = ρ unit + y, ρ² + |y|² = R².

        Args:
            logits: those of R·unit relative to the chosen tokens, as (relative, shift).
        """
        basis = _complement(unit)
        y = basis.T @ offset
        state = _evaluate(self, R, unit, basis, y, logits)
        if state is None:
            return None
        reason = "Newton's method did not converge"
        last = math.inf
        for _ in range(100):
            value, slope, curvature = state
            step = _descent_step(slope, curvature)
            size = float(np.linalg.norm(step)) * self._scale
            reach = 1 + float(np.linalg.norm(y)) * self._scale
            # Steps that stopped shrinking below STALLED are rounding: weak curvature Θ/R amplifies it.
            if size <= ROUNDING * reach or (size <= STALLED * reach and size >= last / 2):
                reason = ""
                break
            length, moved = 1.0, None
            while length > 1e-6:
                trial = y + length * step
                if trial @ trial < (R * (1 - 1e-12)) ** 2:
                    moved = _evaluate(self, R, unit, basis, trial, logits)
                    noise = 64 * EPS * (1 + abs(value))
                    if moved is not None and moved[0] <= value + 1e-4 * length * (slope @ step) + noise:
                        break
                    moved = None
                length /= 2
            if moved is None:
                reason = "" if size <= STALLED * reach else "Newton's method found no descent"
                break
            y, state, last = y + length * step, moved, size
        across = basis @ y
        p = math.sqrt(R * R - y @ y) * unit + across
        if float(np.linalg.norm(self._slope(p))) <= UNSEEN * self._scale:
            # Selecting as at p costs what it costs: no digit of the risk tells this point from its neighbours.
            reason = FLAT_RISK
        on_ray = self._max_margin is not None and unit is self._max_margin.direction
        return _Minimum(p, across if on_ray else self._across(p), state[0] + logits[1], False, reason)


class _LeftTheBall(Exception):
    """L-BFGS went where no interior minimiser is looked for."""


def _complement(unit: Point) -> Float64[np.ndarray, "d d-1"]:
    """An orthonormal basis of the complement of a unit vector."""
    return np.linalg.qr(np.column_stack([unit, np.eye(len(unit))]))[0][:, 1:]


def _descent_step(
    slope: Float64[np.ndarray, "e"], curvature: Float64[np.ndarray, "e e"]
) -> Float64[np.ndarray, "e"]:
    """Newton's step with the curvature's eigenvalues made positive."""
    if not slope.size:
        return slope
    values, vectors = np.linalg.eigh(curvature)
    floor = 1e-15 * float(np.abs(values).max()) or 1.0
    return np.asarray(-vectors @ ((vectors.T @ slope) / np.maximum(np.abs(values), floor)))


def _evaluate(
    search: _Search,
    R: float,
    unit: Point,
    basis: Float64[np.ndarray, "d e"],
    y: Float64[np.ndarray, "e"],
    logits: tuple[Float64[np.ndarray, "n others"], float],
) -> tuple[float, Float64[np.ndarray, "e"], Float64[np.ndarray, "e e"]] | None:
    """log excess minus shift, its gradient and Hessian in y; None where exp overflows."""
    differences, loss = search.differences, search.problem.loss
    along = math.sqrt(R * R - y @ y)
    z = basis @ y - ((y @ y) / (R + along)) * unit
    relative = logits[0] + (differences.rows @ z).reshape(differences.gaps.shape)
    shift = logits[1]
    if relative.max() + shift > LARGEST_EXPONENT:
        return None
    at = terms(differences, loss, relative, shift)
    with np.errstate(divide="ignore"):
        lost = _logsumexp(at.log_weights + np.log(np.abs(differences.gaps)))
    value = _log_excess(search.problem, differences.reference, lost, shift)
    if at.log_scale == -math.inf or value == -math.inf or at.log_scale - value > LARGEST_EXPONENT:
        return None
    factor = math.exp(at.log_scale - value)
    slope = factor * (at.coefficients.ravel() @ differences.rows)
    curvature = factor * hessian(differences, loss, at) - np.outer(slope, slope)
    # dp/dy = basis − unit yᵀ/ρ, and the second derivative of p along unit is −(I/ρ + y yᵀ/ρ³).
    jacobian = basis - np.outer(unit, y / along)
    bend = (np.eye(len(y)) + np.outer(y, y) / along**2) / along
    return value, jacobian.T @ slope, jacobian.T @ curvature @ jacobian - float(unit @ slope) * bend


def _logsumexp(logs: Float64[np.ndarray, "n others"]) -> Float64[np.ndarray, "n"]:
    top = np.maximum(logs.max(axis=1), -1e300)  # −inf − (−inf) would be NaN
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)))


def _log_excess(
    problem: Problem, best: Float64[np.ndarray, "n"], lost: Float64[np.ndarray, "n"], shift: float
) -> float:
    """log(L − L_opt) − shift, where Σ_t s_t (γ_best − γ_t) = e^{lost + shift} for each input."""
    if lost.max() + shift < NEGLIGIBLE:
        each = problem.loss.log_slope(best) + lost
    else:
        each = problem.loss.log_excess(best, np.ones_like(lost), lost + shift)[1] - shift
    top = max(float(each.max()), -1e300)
    total = float(np.exp(each - top).sum())
    return top + math.log(total / problem.n) if total > 0 else -math.inf
