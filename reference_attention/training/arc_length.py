"""One integration of the gradient flow in arc length, step by step, which detects events such as stationary points.

The ODE dp/ds = −∇L/‖∇L‖, s the arc length, is solved in the variable u = log(1 + κ s), where a move by 1/κ changes a
logit by about one (:attr:`.Slope.unit`). So following ‖p‖ over a factor of ten takes about equally many steps.
Near a stationary point the direction of ∇L jumps, so the solver takes tiny steps back and forth (it chatters); Newton's
method then finds the point. A *record* is a stored point, at a requested norm or at the end. The *frame* of the solver
is an orthonormal basis that begins with the direction of a given axis, or the standard basis.

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
"""The interpolant u ↦ p of one step of a solver."""

At = tuple[float, float]
"""The arc length s and log ‖∇L‖ at a point."""
Step = tuple[Dense, At, At]
"""A step of a solver: its interpolant, and (s, log ‖∇L‖) where it begins and where it ends."""
Mark = tuple[int, At | None]
"""The place of a record on the path: the number of whole solver steps before it (−1 at a stationary point), and (s, log
‖∇L‖) if it lies within the next step."""

ABSOLUTE = 1e-10
"""Absolute tolerance of the solver in units of 1/κ. An error of this size changes a logit by 10⁻¹⁰, and a softmax
weight by the share 10⁻¹⁰ of itself."""

ROUNDINGS = 64
"""Least absolute tolerance of the solver, in units of ε‖p‖ at the end of the flow, where ε is the spacing of floats at
1. Rounding changes logits by about ε κ ‖p‖, and so the place of the flow by about ε‖p‖; a smaller tolerance would never
be met."""

SHORT = 1e-7
"""Length of a solver step, relative to 1/κ plus the smaller of ‖p‖ and the arc length so far, below which the step
indicates a sharp turn or a stationary point; Newton's method then looks for a stationary point. The arc length is
considered because steps at the beginning of a path are short compared with ‖p‖."""

FORGOTTEN = 0.2
"""Number by which each step without a reversal of the direction of ∇L lowers the count of reversals. So the count grows
only where more than one step in six reverses, and a count of 2 means chattering. Consecutive directions of a flow are
close to each other, and reverse only near a stationary point."""

PLACED = 1e-3
"""Largest accepted distance, in units of 1/κ, between a point where the computed gradient is zero and a true stationary
point."""

CHATTER = 50
"""Number of chattering steps after which the flow counts as unresolved, if no stationary point is nearby."""

UNRESOLVED = "a valley whose slope along it is below the rounding of the slopes across it"


class Tracer:
    """The gradient flow as an ODE in u = log(1 + κ s), solved step by step, with detection of events between steps."""

    def __init__(
        self,
        slope: Slope,
        start: Point,
        targets: Float64[np.ndarray, "m"],
        relative: float,
        axis: Point | None = None,
        absolute: float = 0.0,
    ) -> None:
        """Store the slope (the function to descend), the start, the norms ``targets`` to record, and the tolerances."""
        self._frame = None if axis is None else _frame(axis)
        self._start, self._targets, self._kappa, self._relative = start, targets, slope.unit, relative
        self._slope, self._field, self._scale = slope, slope.field, slope.scale
        self._newton = slope.newton or _central_differences(slope.field, slope.scale)
        eps = float(np.finfo(float).eps)
        self.absolute = max(absolute, ABSOLUTE / slope.unit, ROUNDINGS * eps * float(targets[-1]))
        self.evaluations = 0
        self._restart()

    def _restart(self) -> None:
        """Delete all records."""
        self.points: list[Point] = []
        self.lengths: list[float] = []
        self._steps: list[Step] = []
        self._marks: list[Mark] = []
        self.log_norms: list[float] = []

    def _gradient(self, p: Point) -> tuple[float, Point]:
        """Return log ‖∇L‖ and ∇L/‖∇L‖ at p; the direction is zero where ∇L is zero."""
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
        """Return the point p whose coordinates in the frame of the solver are y."""
        return y if self._frame is None else self._frame @ y

    def _velocity(self, u: float, y: Point) -> Point:
        """Return dp/du = −(e^u/κ) ∇L/‖∇L‖ in the frame of the solver."""
        return self._to_frame((-math.exp(u) / self._kappa) * self._gradient(self._from_frame(y))[1])

    def _jacobian(self, u: float, y: Point) -> Float64[np.ndarray, "d d"]:
        """Return the derivative of :meth:`_velocity` with respect to y."""
        jacobian = self._jacobian_at(u, self._from_frame(y))
        return jacobian if self._frame is None else self._frame.T @ jacobian @ self._frame

    def _jacobian_at(self, u: float, p: Point) -> Float64[np.ndarray, "d d"]:
        """Return the derivative of dp/du = −(e^u/κ) ∇L/‖∇L‖ with respect to p."""
        # With g = ∇L and ĝ = g/‖g‖, dĝ/dp = (I − ĝ ĝᵀ) ∇²L / ‖g‖; the common factor e^{log_scale} of g and ∇²L cancels.
        _, direction, curvature = self._newton(p)
        length = math.sqrt(direction @ direction)
        if length == 0.0:
            return np.zeros_like(curvature)
        unit = direction / length
        curvature = curvature / length
        return (-math.exp(u) / self._kappa) * (curvature - np.outer(unit, unit @ curvature))

    def _add(self, p: Point, s: float, mark: Mark, log_norm: float) -> None:
        """Record the point p with its arc length s, its place on the path and log ‖∇L‖."""
        self.points.append(p.copy())
        self.lengths.append(s)
        self._marks.append(mark)
        self.log_norms.append(log_norm)

    def log_times(self) -> Float64[np.ndarray, "r"]:
        """Return the logarithm of the flow's time t = ∫ ds/‖∇L‖ at every record.

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
        """Integrate by ``method`` in at most ``most`` steps; return how the flow ended, and the reason if it failed."""
        self._restart()
        p = self._start
        log_norm, unit = self._gradient(p)
        self._add(p, 0.0, (0, None), log_norm)
        if log_norm == -math.inf:
            log_scale, _, curvature = self._newton(p)
            if log_scale == -math.inf or self._resolves(curvature, 1):
                return Stop.STATIONARY, ""
            return self._give_up(p, 0.0, log_norm, UNRESOLVED)
        # The integration ends at the arc length e^{u_end}/κ, 10⁴ times the norm; a flow that gets so long counts as
        # failed.
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
            # In a valley the gradient at a computed point mostly shows the point's error across the valley, so the
            # direction of the flow is taken from the last step.
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

        The integral is estimated twice, with log ‖∇L‖ linear in s on the whole piece, and on each half of the piece.
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
        # The coarse and the fine estimate are close unless the step is too long to resolve; the factor is then limited.
        richer = (4 - math.exp(min(coarse - fine, 1.0))) / 3
        return float(np.logaddexp(log_start, fine + math.log(richer)))

    def _give_up(self, p: Point, s: float, log_norm: float, why: str) -> tuple[Stop, str]:
        """Record p as the last point, and return that the flow failed, with the reason."""
        self._add(p, s, (len(self._steps), None), log_norm)
        return Stop.FAILED, f"{why} (at norm {np.linalg.norm(p):g})"

    def _at_rest(self, p: Point, s: float) -> tuple[Stop, str]:
        """Record the stationary point p, and return that the flow ended there."""
        # The gradient is zero at p up to rounding, and the flow needs infinite time to arrive there.
        self._add(p, s, (-1, None), -math.inf)
        return Stop.STATIONARY, ""

    def _stationary_near(self, p: Point, reach: float, *, saddles: bool) -> Point | None:
        """Return the stationary point that Newton's method reaches from p, if it is near p; otherwise None.

        Args:
            p: the point at which Newton's method starts.
            reach: a length; the stationary point may be ten times as far from p, and a rounding error farther.
            saddles: whether to accept a saddle, too. A flow that merely passes a saddle does not end there.
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
                # Where the curvature is zero along a direction that changes logits, Newton's method does not reduce the
                # slope there.
                if (np.abs(values) > UNSEEN * largest).sum() < self._slope.rank(point):
                    return None
                return point if saddles or values[0] >= -1e-9 * largest else None
        return None

    def _resolves(self, curvature: Square, rank: int) -> bool:
        """Return whether a point whose gradient is zero in floats is certainly near a stationary point.

        The terms of the gradient, of size about 1, may cancel up to their rounding error. This error, divided by a
        curvature, bounds the distance from the stationary point.

        Args:
            curvature: the Hessian at the point.
            rank: how many of the largest eigenvalues must be large enough for this bound. At the start of a flow one is
                enough, because a start at a point of symmetry is stationary whatever the other eigenvalues are.
        """
        values = np.sort(np.abs(np.linalg.eigvalsh(curvature)))[::-1]
        return rank == 0 or bool(values[rank - 1] / self._scale * PLACED >= np.finfo(float).eps)


def _step(solver: OdeSolver, u: float) -> str | None:
    """Let the solver take one step that does not pass u; return the reason if the step failed, otherwise None."""
    end = solver.t_bound
    solver.t_bound = min(end, max(u, np.nextafter(solver.t, math.inf)))
    if isinstance(solver, LSODA):
        # SciPy stores the end of the integration here for ODEPACK, which reads it at every call.
        solver._lsoda_solver._integrator.rwork[0] = solver.t_bound
    message = solver.step()
    if solver.status == "finished" and solver.t < end:
        solver.status = "running"
    solver.t_bound = end
    return message


def _frame(axis: Point) -> Square:
    """Return an orthogonal matrix whose first column is ``axis`` divided by its norm."""
    frame = np.linalg.qr(np.column_stack([axis / np.linalg.norm(axis), np.eye(len(axis))]))[0]
    return np.asarray(frame * np.sign(frame[:, 0] @ axis))


def _central_differences(field: GradientField, scale: float) -> NewtonField:
    """Return a function of p that gives gradient and Hessian, the Hessian by central differences of the gradient."""

    def newton(p: Point) -> tuple[float, Point, Square]:
        log_scale, direction = field(p)
        # A step as long as the cube root of a logit's rounding error balances this error against the truncation error ~
        # step².
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
    """Return the u in [before, after] at which the norm of the interpolant passes ``target``."""

    def short(u: float) -> float:
        return float(np.linalg.norm(dense(u))) - target

    if short(before) >= 0:
        return before
    if short(after) <= 0:
        return after
    return float(brentq(short, before, after, xtol=1e-14, rtol=1e-14))


def _log_piece(length: float, log_norm_before: float, log_norm_after: float) -> float:
    """Return log ∫ ds/‖∇L‖ over a piece of the given length on which log ‖∇L‖ is linear; +inf if ∇L = 0 at an end."""
    change = abs(log_norm_before - log_norm_after)
    if change == math.inf:
        return math.inf
    mean = -math.expm1(-change) / change if change > 1e-12 else 1.0
    return math.log(length) + math.log(mean) - min(log_norm_before, log_norm_after)
