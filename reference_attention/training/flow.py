"""Gradient flow in arc length, followed to norms ‖p‖ at which the limit of its direction is visible.

The flow dp/dt = −∇L(p) moves along the same curve as dp/ds = −∇L/‖∇L‖, where s is the arc length. In this form the
exponentially vanishing gradient does not slow the solver down, and in the variable u = log(1 + κ s), where κ is about
the largest |entry| of the keys, a norm of 10⁶ is reached in a few hundred solver steps.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 2-4; scipy.integrate (LSODA, BDF, Radau).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64
from scipy.integrate import BDF, LSODA, Radau

from reference_attention import risk
from reference_attention.angles import one_minus_cosine_along
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.span import span_of
from reference_attention.training.arc_length import ABSOLUTE, UNRESOLVED, Tracer
from reference_attention.training.derivatives import Point
from reference_attention.training.descent import Stop
from reference_attention.training.iteration import Gradient, signed_excess
from reference_attention.training.slope import slope_of

__all__ = ["ABSOLUTE", "METHODS", "RELATIVE", "Flow", "gradient_flow"]

METHODS = {"LSODA": (LSODA, 10_000), "BDF": (BDF, 3_000), "Radau": (Radau, 1_000)}
"""The solvers by name, each with its largest number of steps. They are tried in this order; a solver is used only if
the previous one fails. A flow to norm 10⁶ takes a few hundred steps of LSODA, or thousands from a start of norm 10³ and
more."""

RELATIVE = 1e-9
"""Relative tolerance of the solver. It allows an error of 10⁻³ in p at ‖p‖ = 10⁶, where the path is at a distance of
about 1 from its limiting ray."""


@dataclass(frozen=True, eq=False)
class Flow:
    """A gradient flow: r recorded points, where it first reached the recorded norms, and its last point.

    Attributes:
        points: the recorded points p, (r, d).
        norms: ‖p‖, (r,).
        arc_length: the arc length s from the start, (r,).
        log_gradient_norm: log ‖∇L‖, (r,).
        sign: sign of L(p) − L_α, (r,), where L_α is the risk if all weight is on the tokens α.
        log_risk: log |L(p) − L_α|, (r,).
        stop: ``NORM`` (the requested norm was reached), ``STATIONARY`` (the flow converges to the last point) or
            ``FAILED``.
        reason: the reason why the flow failed; empty if it did not fail.
        method: the name of the solver that succeeded, or of the last one tried.
        relative, absolute: the solver's tolerances on the coordinates of p; on coordinates in a frame that begins with
            ``axis`` if an axis was given.
        evaluations: the number of gradients computed by all solvers tried.
    """

    points: Float64[np.ndarray, "r d"]
    norms: Float64[np.ndarray, "r"]
    arc_length: Float64[np.ndarray, "r"]
    log_gradient_norm: Float64[np.ndarray, "r"]
    sign: Float64[np.ndarray, "r"]
    log_risk: Float64[np.ndarray, "r"]
    stop: Stop
    reason: str
    method: str
    relative: float
    absolute: float
    evaluations: int
    _times: Callable[[], Float64[np.ndarray, "r"]] = field(repr=False)

    @cached_property
    def log_time(self) -> Float64[np.ndarray, "r"]:
        """Return the logarithm of the flow's time t = ∫ ds/‖∇L‖ at each record, (r,); −inf at the start."""
        return self._times()

    @property
    def final(self) -> Point:
        """Return the last point, (d,)."""
        return np.asarray(self.points[-1])

    @property
    def reached_norm(self) -> bool:
        """Return whether the flow reached the requested norm."""
        return self.stop is Stop.NORM

    def one_minus_cosine(self, direction: Point) -> Float64[np.ndarray, "r"]:
        """Return 1 − cos of the angle between p and ``direction``, (r,), without cancellation; NaN where p = 0."""
        return one_minus_cosine_along(self.points, self.norms, direction / np.linalg.norm(direction))


def gradient_flow(
    problem: Problem,
    start: Point,
    *,
    norm: float,
    record: Float64[np.ndarray, "m"] | None = None,
    gradient: Gradient = risk.scaled_gradient,
    alpha: Int64[np.ndarray, "n"] | None = None,
    relative: float = RELATIVE,
    axis: Point | None = None,
    absolute: float = 0.0,
) -> Flow:
    """Follow dp/dt = −∇L(p) from ``start`` until ‖p‖ = ``norm`` or to a finite stationary point.

    Args:
        problem: keys, scores and loss.
        start: p(0), (d,).
        norm: the norm at which to stop, larger than ‖start‖.
        record: norms; the point where the flow first reaches each of them is recorded; by default eight norms per
            decade.
        gradient: the function that computes ∇L: the reference, a kernel or a planted fault. The solver gets the exact
            Jacobian only for the default.
        alpha: the tokens α of L_α, with which the recorded risk is compared; the optimal tokens by default.
        relative: relative tolerance of the solver, see :data:`RELATIVE`.
        axis: a direction, (d,). If it is given, the solver works in an orthonormal basis that begins with it, so that
            ``relative`` refers to the part of p orthogonal to the axis and not to ‖p‖, which may be 10⁹ times larger.
        absolute: absolute tolerance of the solver; a tolerance below the rounding of p at ``norm``, or below what
            changes a logit by 10⁻¹⁰, is raised to it.

    Raises:
        InvalidInput: the start has the wrong shape or is not finite, or ``norm`` is not larger than the norm of the
            start.
    """
    start = np.array(start, dtype=np.float64)
    if start.shape != (problem.d,) or not np.isfinite(start).all():
        raise InvalidInput(f"start: give one finite point of shape ({problem.d},), not {start.shape}.")
    begin = float(np.linalg.norm(start))
    if not (math.isfinite(norm) and norm > begin):
        raise InvalidInput(f"norm: {norm:g} must be finite and larger than the norm {begin:g} of start.")
    kappa = problem.key_scale
    if record is None:
        low = max(begin, min(1e-3 / kappa, norm / 10))
        record = np.geomspace(low, norm, 1 + math.ceil(8 * math.log10(norm / low)))[1:]
    targets = np.unique(np.append(record[(record > begin) & (record < norm)], norm))
    is_risk_gradient = gradient is risk.scaled_gradient
    span = span_of(problem.keys, start, *([] if axis is None else [axis])) if is_risk_gradient else None
    if span is None:
        tracer = Tracer(slope_of(problem, gradient), start, targets, relative, axis, absolute)
    else:
        along = None if axis is None else span.coordinates(axis)
        slope = slope_of(problem, gradient, span)
        tracer = Tracer(slope, span.coordinates(start), targets, relative, along, absolute)
    name, stop, reason = follow(tracer)
    chosen = problem.optimal if alpha is None else alpha
    points = np.array(tracer.points)
    if span is not None:
        points = span.moved(start, points)
    sign, log_risk = signed_excess(problem.keys, problem.scores, problem.loss, points, alpha=chosen)
    return Flow(
        points=points,
        norms=np.linalg.norm(points, axis=1),
        arc_length=np.array(tracer.lengths),
        log_gradient_norm=np.array(tracer.log_norms),
        sign=sign,
        log_risk=log_risk,
        stop=stop,
        reason=reason,
        method=name,
        relative=relative,
        absolute=tracer.absolute,
        evaluations=tracer.evaluations,
        _times=tracer.log_times,
    )


def follow(tracer: Tracer) -> tuple[str, Stop, str]:
    """Run the solvers until one succeeds; return the name of the last one run, how it ended, and a reason.

    The solvers of :data:`METHODS` are run in order. The reason says why each solver failed if none succeeds, and is
    empty otherwise.
    """
    reasons, name, stop = [], "", Stop.FAILED
    for name in METHODS:
        stop, reason = tracer.run(*METHODS[name])
        if stop is not Stop.FAILED:
            return name, stop, ""
        reasons.append(f"{name}: {reason}")
        if reason.startswith(UNRESOLVED):
            break  # another solver would meet the same rounding errors
    return name, stop, "; ".join(reasons)
