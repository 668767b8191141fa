"""Gradient flows of many problems of the same shape, followed at once with separate step lengths.

As in :mod:`.arc_length`, dp/du = −(e^u/κ) ∇L/‖∇L‖ in u = log(1 + κ s). A step is extrapolated from linearly implicit
Euler steps, whose matrices I − hJ are factorised for all problems of the batch in one LAPACK call; order and cost are
the same for all problems, and each has its own step length. A flow that makes no progress (at a stationary point, or in
a valley whose slopes are below rounding) is handed over to the flow of a single problem, which distinguishes these
cases.

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
"""Numbers of Euler steps into which a step is divided, one column of the extrapolation for each number, so the order is
seven."""
FIRST = 1e-2
"""The first step in u."""
SAFETY, LARGEST, SMALLEST = 0.8, 4.0, 0.2
"""Factor on the step that would just meet the tolerance, and largest and smallest ratio of consecutive steps."""
SHORT = 1e-6
"""Length of a step in arc length, relative to ‖p‖ + 1/κ, below which it counts as no progress: the flow is near a
stationary point or turns sharply."""
MOST = 2000
"""Number of steps, rejected ones included, after which a flow is followed separately."""
ARRIVED = 1e-10
"""Relative distance from the requested norm within which the last step has to end; its point is scaled to that norm."""


@dataclass(frozen=True, eq=False)
class Flows:
    """The end points of b flows.

    Attributes:
        points: p at the norm, or the point of rest, (b, d).
        stops: ``NORM``, ``STATIONARY`` or ``FAILED``.
        reasons: why a flow failed, empty otherwise.
        alone: mask of the flows that were followed separately to their end, (b,).
        steps: number of steps within the batch, (b,).
    """

    points: Batch
    stops: tuple[Stop, ...]
    reasons: tuple[str, ...]
    alone: Bool[np.ndarray, "b"]
    steps: Int64[np.ndarray, "b"]

    def one_minus_cosine(self, directions: Batch) -> Float64[np.ndarray, "b"]:
        """Return 1 − cos∠(p, direction) of each flow, without cancellation."""
        unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        return one_minus_cosine_along(self.points, np.linalg.norm(self.points, axis=1), unit)


def gradient_flows(
    problems: Sequence[Problem], starts: Batch, *, norms: Float64[np.ndarray, "_"], relative: float = RELATIVE
) -> Flows:
    """Follow dp/dt = −∇L(p) of each problem from its start to the first passage of its norm.

    Args:
        problems: b problems, of one shape and one loss.
        starts: p(0), (b, d).
        norms: ‖p‖ at which each flow ends, (b,), larger than the norms of the starts.
        relative: relative tolerance; the absolute one is that of :func:`.flow.gradient_flow`.

    Raises:
        InvalidInput: problems of several shapes or losses; starts or norms that do not fit.
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
    """The state of all flows; the unfinished ones are advanced together."""

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
        """Advance until every flow has reached its norm or is handed over to be followed separately."""
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
        """Advance the flows ``on`` by a step each, if the step is accurate enough; return which of them arrived."""
        u, p = self._u[on], self.p[on]
        # The norm grows by no more than the arc length, so a step of arc length ``gap`` does not pass the requested
        # norm.
        gap = self._norms[on] - np.linalg.norm(p, axis=1)
        _, direction, curvature = field.newton(p)
        length = np.linalg.norm(direction, axis=1)
        unit = direction / length[:, None]
        last_step = p - self._before[on]
        size = np.linalg.norm(last_step, axis=1, keepdims=True)
        # In a valley the gradient mostly reflects the error of the point across the valley; the last step shows where
        # the flow goes.
        along = np.divide(last_step, size, out=-unit, where=size > 0)
        arc = np.minimum(gap, field.ahead(p, along))
        h = np.minimum(self._h[on], np.log1p(self._kappa[on] * arc / np.exp(u)))
        # d(g/‖g‖)/dp = (I − ĝ ĝᵀ) ∇²L / ‖g‖; the log scale cancels.
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
        """Return p at u + h by Aitken and Neville's scheme, and the change made by the last column."""
        eye, row = np.eye(p.shape[1]), list[Batch]()
        for parts in SUBSTEPS:
            part = h / parts
            matrices = eye - part[:, None, None] * jacobian
            try:
                inverse = np.linalg.inv(matrices)
            except np.linalg.LinAlgError:  # singular: the change made by the last column shows the error
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
