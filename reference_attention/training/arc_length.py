"""One integration of the gradient flow in arc length, step by step, with detection of events such as rest points.

The ODE dp/ds = −∇L/‖∇L‖ is solved in the variable u = log(1 + κ s), where κ is the size of the keys. s = 0 is u = 0,
and each decade of the norm takes about as many steps as the previous decade. Near a stationary point the direction is
discontinuous, so the solver chatters; Newton's method then finds the point.

References: scipy.integrate (LSODA, BDF, Radau); Richardson's extrapolation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.integrate import LSODA, OdeSolver
from scipy.optimize import brentq

from reference_attention.training.derivatives import GradientField, NewtonField, Point, Square
from reference_attention.training.descent import Stop
from reference_attention.training.slope import UNSEEN, Slope

Dense = Callable[[float], Point]
"""The interpolant u ↦ p within the last step of a solver."""

At = tuple[float, float]
"""Arc length and log ‖∇L‖ at a point."""
Step = tuple[Dense, At, At]
"""A step of a solver: its interpolant, and the points where it begins and ends."""
Mark = tuple[int, At | None]
"""The place of a recorded point: the number of whole solver steps before it (−1 at a stationary point), and the
position within the next step."""

ABSOLUTE = 1e-10
"""Absolute tolerance in units of 1/κ: an error of this size changes a logit by 10⁻¹⁰ and a softmax weight by as much,
relatively."""

ROUNDINGS = 64
"""Least absolute tolerance, in roundings of the largest norm: at norm ‖p‖ logits carry an error of ε κ
‖p‖, so the offset from the ray has an error of ε‖p‖, and a solver with a smaller tolerance would never be satisfied."""

SHORT = 1e-7
"""Length of a solver step, relative to 1/κ and to the smaller of ‖p‖ and the arc length so far, below which the step
indicates a sharp turn or a stationary point; Newton's method then looks for a stationary point. The arc length is used
because steps at the beginning of a path are short compared with any norm."""

FORGOTTEN = 0.2
"""Decay per step of the count of reversed directions; with it, reversals in two of ten consecutive steps count as
chattering. Consecutive directions of a resolved flow are close, and only near a stationary point do directions
reverse."""

PLACED = 1e-3
"""Largest accepted distance, in units of 1/κ, between a point where the gradient is zero in floats and the true
stationary point."""

CHATTER = 50
"""Number of chattering steps without a stationary point nearby after which a flow counts as unresolved."""

UNRESOLVED = "a valley whose slope along it is below the rounding of the slopes across it"


class Tracer:
    """The flow as an ODE in u = log(1 + κ s), stepped by hand so that events are detected between steps."""

    def __init__(
        self,
        slope: Slope,
        start: Point,
        targets: Float64[np.ndarray, "m"],
        relative: float,
        axis: Point | None = None,
        absolute: float = 0.0,
    ) -> None:
        """Take the slope, the start, the target lengths and the tolerances, and begin a path without points."""
        self._frame = None if axis is None else _frame(axis)
        self._start, self._targets, self._kappa, self._relative = start, targets, slope.unit, relative
        self._slope, self._field, self._scale = slope, slope.field, slope.scale
        self._newton = slope.newton or _central_differences(slope.field, slope.scale)
        eps = float(np.finfo(float).eps)
        self.absolute = max(absolute, ABSOLUTE / slope.unit, ROUNDINGS * eps * float(targets[-1]))
        self.evaluations = 0
        self._restart()

    def _restart(self) -> None:
        """Delete all recorded points."""
        self.points: list[Point] = []
        self.lengths: list[float] = []
        self._steps: list[Step] = []
        self._marks: list[Mark] = []
        self.log_norms: list[float] = []

    def _gradient(self, p: Point) -> tuple[float, Point]:
        """Return log ‖∇L‖ and ∇L/‖∇L‖ (zero where ∇L is zero)."""
        self.evaluations += 1
        log_scale, direction = self._field(p)
        length = math.sqrt(direction @ direction)
        if length == 0.0 or not math.isfinite(log_scale):
            return -math.inf, np.zeros_like(p)
        return log_scale + math.log(length), direction / length

    def _to_frame(self, p: Point) -> Point:
        """Return the coordinates of p in the frame of the solver."""
        return p if self._frame is None else self._frame.T @ p

    def _from_frame(self, y: Point) -> Point:
        """Return the point with these coordinates in the frame of the solver."""
        return y if self._frame is None else self._frame @ y

    def _velocity(self, u: float, y: Point) -> Point:
        """Return dp/du = −(e^u/κ) ∇L/‖∇L‖ in the frame."""
        return self._to_frame((-math.exp(u) / self._kappa) * self._gradient(self._from_frame(y))[1])

    def _jacobian(self, u: float, y: Point) -> Float64[np.ndarray, "d d"]:
        """Return the derivative of the velocity with respect to y, in the frame."""
        jacobian = self._jacobian_at(u, self._from_frame(y))
        return jacobian if self._frame is None else self._frame.T @ jacobian @ self._frame

    def _jacobian_at(self, u: float, p: Point) -> Float64[np.ndarray, "d d"]:
        """Return the derivative of the velocity with respect to p."""
        # d(g/‖g‖)/dp = (I − ĝ ĝᵀ) ∇²L / ‖g‖; the log scale cancels.
        _, direction, curvature = self._newton(p)
        length = math.sqrt(direction @ direction)
        if length == 0.0:
            return np.zeros_like(curvature)
        unit = direction / length
        curvature = curvature / length
        return (-math.exp(u) / self._kappa) * (curvature - np.outer(unit, unit @ curvature))

    def _add(self, p: Point, s: float, mark: Mark, log_norm: float) -> None:
        """Record a point with its arc length and log ‖∇L‖."""
        self.points.append(p.copy())
        self.lengths.append(s)
        self._marks.append(mark)
        self.log_norms.append(log_norm)

    def log_times(self) -> Float64[np.ndarray, "r"]:
        """Return log of the time t = ∫ ds/‖∇L‖ at every record.

        The times cost a gradient per step, so they are computed only on demand.
        """
        until = [-math.inf]
        for dense, before, after in self._steps:
            until.append(self._log_time(dense, until[-1], before, after))
        times = []
        for number, at in self._marks:
            if number < 0:
                times.append(math.inf)
            elif at is None:
                times.append(until[number])
            else:
                dense, before, _ = self._steps[number]
                times.append(self._log_time(dense, until[number], before, at))
        return np.array(times)

    def run(self, method: type[OdeSolver], most: int) -> tuple[Stop, str]:
        """Integrate by ``method`` in at most ``most`` steps; return why it stopped, and why it failed if it did."""
        self._restart()
        p = self._start
        log_norm, unit = self._gradient(p)
        self._add(p, 0.0, (0, None), log_norm)
        if log_norm == -math.inf:
            log_scale, _, curvature = self._newton(p)
            if log_scale == -math.inf or self._resolves(curvature, 1):
                return Stop.STATIONARY, ""
            return self._give_up(p, 0.0, log_norm, UNRESOLVED)
        # The integration ends at the arc length e^{u_end}/κ; a flow that is longer has not reached the norm.
        u_end = math.log1p(self._kappa * 1e4 * float(self._targets[-1]))
        options = {"jac": self._jacobian} if self._slope.newton else {}
        solver = method(
            self._velocity, 0.0, self._to_frame(p), u_end, rtol=self._relative, atol=self.absolute, **options
        )
        next_record, s, steps, flips, chatter = 0, 0.0, 0, 0.0, 0
        along = -unit
        while solver.status == "running":
            steps += 1
            limit = math.log1p(self._kappa * (s + self._slope.arc(p, along)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # LSODA warns of its failures, which the status reports as well.
                message = _step(solver, limit)
            if solver.status == "failed" or not np.isfinite(solver.y).all():
                stationary = self._stationary_near(p, 0.0, saddles=True)
                if stationary is not None:
                    return self._at_rest(stationary, s)
                return self._give_up(p, s, log_norm, message or "the solver returned NaN or infinite entries")
            p_before, (p, u) = p, (self._from_frame(solver.y), solver.t)
            s_before, log_norm_before, unit_before = s, log_norm, unit
            s = math.expm1(u) / self._kappa
            log_norm, unit = self._gradient(p)
            # In a valley the gradient mostly reflects the error of the point across the valley; the last step shows
            # where the flow goes.
            along = (p - p_before) / (s - s_before) if s > s_before else -unit
            flips = flips + 1 if unit @ unit_before < 0 else max(0.0, flips - FORGOTTEN)
            size = float(np.linalg.norm(p))
            short = s - s_before < SHORT * (1 / self._kappa + min(size, s))
            chatter = chatter + 1 if short or flips >= 2 else max(0, chatter - 1)
            if log_norm == -math.inf or flips >= 2 or (short and steps % 10 == 0):
                stationary = self._stationary_near(p, s - s_before, saddles=log_norm == -math.inf)
                if stationary is not None:
                    return self._at_rest(stationary, s)
            if chatter >= CHATTER or log_norm == -math.inf:
                return self._give_up(p, s, log_norm, UNRESOLVED)
            dense = self._dense(solver)
            self._steps.append((dense, (s_before, log_norm_before), (s, log_norm)))
            while size >= self._targets[next_record]:
                target = float(self._targets[next_record])
                at = _passage(dense, solver.t_old, solver.t, target)
                passed = dense(at)
                passed = passed * (target / np.linalg.norm(passed))
                s_at, log_at = math.expm1(at) / self._kappa, self._gradient(passed)[0]
                self._add(passed, s_at, (len(self._steps) - 1, (s_at, log_at)), log_at)
                next_record += 1
                if next_record == len(self._targets):
                    return Stop.NORM, ""
            if steps >= most:
                stationary = self._stationary_near(p, 1e-3 / self._kappa, saddles=True)
                if stationary is not None:
                    return self._at_rest(stationary, s)
                return self._give_up(p, s, log_norm, f"{steps} steps without reaching the norm")
        return self._give_up(p, s, log_norm, "the path is 10^4 times longer than the norm")

    def _dense(self, solver: OdeSolver) -> Dense:
        """Return the interpolant of the last step as a function u ↦ p."""
        interpolant = solver.dense_output()
        return lambda u: self._from_frame(interpolant(u))

    def _log_time(
        self, dense: Dense, log_start: float, before: tuple[float, float], after: tuple[float, float]
    ) -> float:
        """Return log(e^{log_start} + ∫ ds/‖∇L‖), integrated between two points (s, log ‖∇L‖) of a step.

        The integral is estimated twice, with log ‖∇L‖ linear in s on the whole piece and on each of its halves;
        Richardson's extrapolation combines the two estimates.
        """
        (s, log_norm), (s_after, log_norm_after) = before, after
        if s_after <= s:
            return log_start
        s_half = (s + s_after) / 2
        log_half = self._gradient(dense(math.log1p(self._kappa * s_half)))[0]
        coarse = _log_piece(s_after - s, log_norm, log_norm_after)
        fine = float(
            np.logaddexp(_log_piece(s_half - s, log_norm, log_half), _log_piece(s_half - s, log_half, log_norm_after))
        )
        if not math.isfinite(fine):
            return fine
        # The two estimates are close unless the step is too long to resolve; then only the fine estimate is used.
        richer = (4 - math.exp(min(coarse - fine, 1.0))) / 3
        return float(np.logaddexp(log_start, fine + math.log(richer)))

    def _give_up(self, p: Point, s: float, log_norm: float, why: str) -> tuple[Stop, str]:
        """Record the last point and return the failure with its reason."""
        self._add(p, s, (len(self._steps), None), log_norm)
        return Stop.FAILED, f"{why} (at norm {np.linalg.norm(p):g})"

    def _at_rest(self, p: Point, s: float) -> tuple[Stop, str]:
        """Record a stationary point and return that the flow ended there."""
        # The flow takes infinite time to arrive at p, where the gradient is zero up to rounding.
        self._add(p, s, (-1, None), -math.inf)
        return Stop.STATIONARY, ""

    def _stationary_near(self, p: Point, reach: float, *, saddles: bool) -> Point | None:
        """Return the stationary point that Newton's method reaches within ``reach`` (and a rounding) of p, or None.

        Args:
            p: the point at which Newton's method starts.
            reach: largest distance from p.
            saddles: whether to accept a point that is not a local minimum; a flow that merely passes a saddle goes on.
        """
        unit = 1 / self._scale + float(np.linalg.norm(p))
        point = p
        for _ in range(30):
            log_scale, direction, curvature = self._newton(point)
            if log_scale == -math.inf:
                return point
            if not direction.any():
                return point if self._resolves(curvature, self._slope.rank(point)) else None
            if not np.isfinite(curvature).all():
                return None
            step = np.linalg.lstsq(curvature, -direction, rcond=UNSEEN)[0]
            point = point + step
            if not np.isfinite(point).all() or np.linalg.norm(point - p) > 10 * reach + 10 * SHORT * unit:
                return None
            if np.linalg.norm(step) <= 1e-12 * unit:
                values = np.linalg.eigvalsh(curvature)
                largest = np.abs(values).max()
                # Newton's method does not reduce a slope along a direction in which logits change but the curvature is
                # zero.
                if (np.abs(values) > UNSEEN * largest).sum() < self._slope.rank(point):
                    return None
                return point if saddles or values[0] >= -1e-9 * largest else None
        return None

    def _resolves(self, curvature: Square, rank: int) -> bool:
        """Return whether a point whose gradient is zero in floats is certainly near a stationary point.

        Terms of the gradient, of size about 1, may cancel up to rounding. This rounding error, divided by a curvature,
        bounds the distance from the stationary point.

        Args:
            curvature: the Hessian at the point.
            rank: how many of the largest eigenvalues must resolve the point. At a start one is enough: a symmetric
                start is stationary whatever the other eigenvalues are.
        """
        values = np.sort(np.abs(np.linalg.eigvalsh(curvature)))[::-1]
        return rank == 0 or bool(values[rank - 1] / self._scale * PLACED >= np.finfo(float).eps)


def _step(solver: OdeSolver, u: float) -> str | None:
    """Take one step that does not pass u; return the reason if the step failed, otherwise None."""
    end = solver.t_bound
    solver.t_bound = min(end, max(u, np.nextafter(solver.t, math.inf)))
    if isinstance(solver, LSODA):
        # SciPy passes the end of the integration in this place, and ODEPACK reads it at every call.
        solver._lsoda_solver._integrator.rwork[0] = solver.t_bound
    message = solver.step()
    if solver.status == "finished" and solver.t < end:
        solver.status = "running"
    solver.t_bound = end
    return message


def _frame(axis: Point) -> Square:
    """Return an orthogonal matrix whose first column is the direction of ``axis``."""
    frame = np.linalg.qr(np.column_stack([axis / np.linalg.norm(axis), np.eye(len(axis))]))[0]
    return np.asarray(frame * np.sign(frame[:, 0] @ axis))


def _central_differences(field: GradientField, scale: float) -> NewtonField:
    """Return a function for gradient and Hessian that computes the Hessian by central differences of the gradient."""

    def newton(p: Point) -> tuple[float, Point, Square]:
        log_scale, direction = field(p)
        # A step of the cube root of a logit's rounding error balances this error against the truncation error ~ step².
        step = float(np.cbrt(np.finfo(float).eps * (1 + scale * np.linalg.norm(p)))) / scale
        columns = []
        for axis in np.eye(len(p)):
            ahead, behind = field(p + step * axis), field(p - step * axis)
            difference = math.exp(ahead[0] - log_scale) * ahead[1] - math.exp(behind[0] - log_scale) * behind[1]
            columns.append(difference / (2 * step))
        curvature = np.array(columns)
        return log_scale, direction, (curvature + curvature.T) / 2

    return newton


def _passage(dense: Dense, before: float, after: float, target: float) -> float:
    """Return where in [before, after] the norm passes ``target``."""

    def short(u: float) -> float:
        return float(np.linalg.norm(dense(u))) - target

    if short(before) >= 0:
        return before
    if short(after) <= 0:
        return after
    return float(brentq(short, before, after, xtol=1e-14, rtol=1e-14))


def _log_piece(length: float, log_norm_before: float, log_norm_after: float) -> float:
    """Return log ∫ ds/‖∇L‖ over a length on which log ‖∇L‖ is linear; infinite where one end is stationary."""
    change = abs(log_norm_before - log_norm_after)
    if change == math.inf:
        return math.inf
    mean = -math.expm1(-change) / change if change > 1e-12 else 1.0
    return math.log(length) + math.log(mean) - min(log_norm_before, log_norm_after)
