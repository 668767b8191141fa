"""Gradient flows of many problems of the same shape, followed at once, each with its own step length.

As in :mod:`.arc_length`, the ODE dp/du = −(e^u/κ) ∇L/‖∇L‖ is solved in u = log(1 + κ s), where s is the arc length and
κ about the largest |entry| of the keys. A step of length h in u is extrapolated from linearly implicit Euler steps.
Their matrices I − hJ, J the Jacobian, are inverted for all problems of the batch in one LAPACK call. A flow that makes
no progress (at a stationary point, or in a valley whose slopes are below rounding) is handed over to
:func:`.flow.gradient_flow`, which follows it alone and distinguishes these cases.

References: E. Hairer and G. Wanner, *Solving Ordinary Differential Equations II*, IV.9 (extrapolation methods).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.angles import one_minus_cosine_along
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.span import Span, span_of
from reference_attention.training.arc_length import ABSOLUTE, ROUNDINGS
from reference_attention.training.batched_gradient import BatchedGradient
from reference_attention.training.descent import Stop
from reference_attention.training.flow import RELATIVE, gradient_flow

Batch = Float64[np.ndarray, "b d"]

SUBSTEPS = (1, 2, 3, 4, 5, 6, 7)
"""Numbers of Euler steps into which a step is divided in turn; each number adds a column to the extrapolation, so the
order is seven."""
FIRST = 1e-2
"""Length of the first step in u."""
SAFETY, LARGEST, SMALLEST = 0.8, 4.0, 0.2
"""Factor by which the next step is shorter than the step that would just meet the tolerance; and the largest and the
smallest ratio of consecutive steps."""
SHORT = 1e-6
"""Arc length of a step, relative to ‖p‖ + 1/κ, below which the step counts as no progress: the flow is near a
stationary point, or turns sharply."""
MOST = 2000
"""Number of steps, rejected ones included, after which a flow is handed over to be followed alone."""
ARRIVED = 1e-10
"""Relative distance from the requested norm within which the last step has to end; its end point is then scaled to this
norm."""


@dataclass(frozen=True, eq=False)
class Flows:
    """The end points of b flows.

    Attributes:
        points: the point p where each flow reached its norm, or the stationary point where it ended, (b, d).
        stops: how each flow ended: ``NORM``, ``STATIONARY`` or ``FAILED``.
        reasons: the reason why each flow failed; empty if it did not fail.
        alone: mask of the flows that were handed over and followed alone to their end, (b,).
        steps: the number of steps that each flow took within the batch, (b,).
    """

    points: Batch
    stops: tuple[Stop, ...]
    reasons: tuple[str, ...]
    alone: Bool[np.ndarray, "b"]
    steps: Int64[np.ndarray, "b"]

    def one_minus_cosine(self, directions: Batch) -> Float64[np.ndarray, "b"]:
        """Return 1 − cos of the angle between each flow's end point and a direction, (b, d), without cancellation."""
        unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        return one_minus_cosine_along(self.points, np.linalg.norm(self.points, axis=1), unit)


def gradient_flows(
    problems: Sequence[Problem], starts: Batch, *, norms: Float64[np.ndarray, "_"], relative: float = RELATIVE
) -> Flows:
    """Follow dp/dt = −∇L(p) for each problem, from its start until ‖p‖ first reaches its norm.

    Args:
        problems: b problems of the same shape and loss.
        starts: the start p(0) of each flow, (b, d).
        norms: the norm ‖p‖ at which each flow ends, (b,), larger than the norm of its start.
        relative: relative tolerance of the solver; the absolute tolerance is that of :func:`.flow.gradient_flow`.

    Raises:
        InvalidInput: the problems have different shapes or losses, or starts or norms do not fit them.
    """
    if len({(p.keys.shape, p.loss.name) for p in problems}) != 1:
        raise InvalidInput("problems: all must have the same shape and loss; make a call for each shape and loss.")
    starts, norms = np.array(starts, dtype=np.float64), np.asarray(norms, dtype=np.float64)
    if starts.shape != (len(problems), problems[0].d) or norms.shape != (len(problems),):
        raise InvalidInput(
            f"starts: give an array of shape {(len(problems), problems[0].d)}, and one norm per problem."
        )
    if not (np.isfinite(norms) & (norms > np.linalg.norm(starts, axis=1))).all():
        raise InvalidInput("norms: each must be finite and larger than the norm of its start.")
    alike = all(problem is problems[0] for problem in problems)
    span = span_of(problems[0].keys, *starts) if alike else None
    run = _Run(problems, starts if span is None else span.coordinates(starts), norms, relative, span)
    run.follow()
    points = run.p if span is None else span.moved(starts, run.p)
    stops, reasons = [Stop.NORM] * len(problems), [""] * len(problems)
    for k in np.flatnonzero(run.left).tolist():
        flow = gradient_flow(problems[k], points[k], norm=float(norms[k]), relative=relative)
        points[k], stops[k], reasons[k] = flow.final, flow.stop, flow.reason
    return Flows(points, tuple(stops), tuple(reasons), run.left, run.steps)


class _Run:
    """The state of all flows of a call; the unfinished flows are advanced together."""

    def __init__(
        self,
        problems: Sequence[Problem],
        p: Batch,
        norms: Float64[np.ndarray, "b"],
        relative: float,
        span: Span | None = None,
    ) -> None:
        self._span = span
        self._keys = np.stack([problem.keys for problem in problems])
        self._scores = np.stack([problem.scores for problem in problems])
        self._loss = problems[0].loss
        self._kappa = np.array([problem.key_scale for problem in problems])
        self._norms, self._relative = norms, relative
        self._absolute = np.maximum(ABSOLUTE / self._kappa, ROUNDINGS * np.finfo(float).eps * norms)
        self.p = p
        self._before = p.copy()
        self._u = np.zeros(len(p))
        self._h = np.full(len(p), FIRST)
        self.steps = np.zeros(len(p), dtype=np.int64)
        self.left = np.zeros(len(p), dtype=bool)

    def follow(self) -> None:
        """Advance all flows until each has reached its norm, or is marked (in ``left``) to be followed alone."""
        on = np.arange(len(self.p))
        field = BatchedGradient(self._keys, self._scores, self._loss, self._span)
        while len(on):
            arrived = self._advance(field, on)
            self.steps[on] += 1
            arc = np.expm1(self._h[on]) * np.exp(self._u[on]) / self._kappa[on]
            size = 1 / self._kappa[on] + np.linalg.norm(self.p[on], axis=1)
            no_progress = ~arrived & ((arc < SHORT * size) | (self.steps[on] >= MOST) | ~np.isfinite(arc))
            self.left[on[no_progress]] = True
            keep = ~(arrived | no_progress)
            if not keep.all():
                on = on[keep]
                if len(on):
                    field = BatchedGradient(self._keys[on], self._scores[on], self._loss, self._span)

    def _advance(self, field: BatchedGradient, on: Int64[np.ndarray, "k"]) -> Bool[np.ndarray, "k"]:
        """Try a step of each flow in ``on``, and accept it if it is accurate enough; return a mask of arrived flows."""
        u, p = self._u[on], self.p[on]
        # The norm grows by no more than the arc length, so a step of arc length ``gap`` does not pass the requested
        # norm.
        gap = self._norms[on] - np.linalg.norm(p, axis=1)
        _, direction, curvature = field.newton(p)
        length = np.linalg.norm(direction, axis=1)
        unit = direction / length[:, None]
        last_step = p - self._before[on]
        size = np.linalg.norm(last_step, axis=1, keepdims=True)
        # In a valley the gradient at a computed point mostly shows the point's error across the valley, so the
        # direction of the flow is taken from the last step.
        along = np.divide(last_step, size, out=-unit, where=size > 0)
        arc = np.minimum(gap, field.ahead(p, along))
        h = np.minimum(self._h[on], np.log1p(self._kappa[on] * arc / np.exp(u)))
        # With g = ∇L and ĝ = g/‖g‖, dĝ/dp = (I − ĝ ĝᵀ) ∇²L / ‖g‖; the common factor e^{log_scale} of g and ∇²L cancels.
        scaled_hessian = curvature / length[:, None, None]
        jacobian = -(np.exp(u) / self._kappa[on])[:, None, None] * (
            scaled_hessian - unit[:, :, None] * np.vecmat(unit, scaled_hessian)[:, None]
        )
        after, error = self._extrapolate(field, on, u, h, p, jacobian)
        tolerance = self._absolute[on][:, None] + self._relative * np.maximum(np.abs(p), np.abs(after))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            relative_error = np.sqrt(np.mean((error / tolerance) ** 2, axis=1))
            relative_error = np.where(np.isfinite(relative_error), relative_error, np.inf)
            next_h = h * np.clip(SAFETY * relative_error ** (-1 / len(SUBSTEPS)), SMALLEST, LARGEST)
        accepted = relative_error <= 1
        self._h[on] = np.where(accepted & (h < self._h[on]), self._h[on], next_h)
        self._before[on[accepted]] = p[accepted]
        self.p[on[accepted]], self._u[on[accepted]] = after[accepted], (u + h)[accepted]
        size = np.linalg.norm(self.p[on], axis=1)
        arrived = size >= self._norms[on] * (1 - ARRIVED)
        self.p[on[arrived]] *= (self._norms[on] / size)[arrived, None]
        return arrived

    def _extrapolate(
        self,
        field: BatchedGradient,
        on: Int64[np.ndarray, "k"],
        u: Float64[np.ndarray, "k"],
        h: Float64[np.ndarray, "k"],
        p: Float64[np.ndarray, "k d"],
        jacobian: Float64[np.ndarray, "k d d"],
    ) -> tuple[Float64[np.ndarray, "k d"], Float64[np.ndarray, "k d"]]:
        """Return p at u + h by Aitken and Neville's scheme, and an error estimate, the change by its last column."""
        eye, row = np.eye(p.shape[1]), list[Batch]()
        for parts in SUBSTEPS:
            part = h / parts
            matrices = eye - part[:, None, None] * jacobian
            try:
                inverse = np.linalg.inv(matrices)
            except np.linalg.LinAlgError:  # singular: the error estimate shows the effect
                inverse = np.linalg.pinv(matrices)
            y = p
            for k in range(parts):
                _, direction = field(y)
                length = np.linalg.norm(direction, axis=1)
                speed = -part * np.exp(u + (k + 1) * part) / self._kappa[on] / np.where(length > 0, length, 1.0)
                y = y + np.matvec(inverse, speed[:, None] * direction)
            new = [y]
            for column, (older, count) in enumerate(zip(row, reversed(SUBSTEPS[: len(row)]), strict=True)):
                new.append(new[column] + (new[column] - older) / (parts / count - 1))
            row = new
        return row[-1], row[-1] - row[-2]
