"""Faults in the loop of gradient descent: the gradient at every iterate is right, and the iterates are not its run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.training import descent
from reference_attention.training.descent import Trajectory
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Rule = Callable[[Array, Array, Array, int, float], Array]
"""(p, the right step from there, the right step before that, t, size) → the iterate in place of p + step."""


@dataclass(frozen=True)
class Loop:
    """Descent with another rule for the next iterate. Called with a size it makes the fault."""

    rule: Rule
    size: float = 0.0

    def gradient_descent(self, problem: Any, start: Array, **asked: Any) -> Trajectory:
        """As :func:`reference_attention.training.descent.gradient_descent`."""
        return self._run(descent.gradient_descent, problem, start, asked)

    def normalized_gradient_descent(self, problem: Any, start: Array, **asked: Any) -> Trajectory:
        """As :func:`reference_attention.training.descent.normalized_gradient_descent`."""
        return self._run(descent.normalized_gradient_descent, problem, start, asked)

    def _run(self, right: Callable[..., Trajectory], problem: Any, start: Array, asked: dict[str, Any]) -> Trajectory:
        """Step by step: each right step is asked for from where the wrong run is."""
        steps = asked.pop("steps")
        p = np.array(start, dtype=np.float64)
        points, last = [p], np.zeros_like(p)
        for t in range(steps):
            step = right(problem, p, steps=1, **asked).final - p
            p, last = self.rule(p, step, last, t, self.size), step
            points.append(p)
        return _with_points(right(problem, start, steps=steps, **asked), np.array(points))

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        made = Loop(self.rule, size)
        return REFERENCE.replace(
            "", gradient_descent=made.gradient_descent, normalized_gradient_descent=made.normalized_gradient_descent
        )


@dataclass(frozen=True)
class Recorded:
    """The right iterates, reported otherwise: (points) → points. Called with a size it makes the fault."""

    change: Callable[[Array], Array]

    def gradient_descent(self, problem: Any, start: Array, **asked: Any) -> Trajectory:
        """As :func:`reference_attention.training.descent.gradient_descent`."""
        run = descent.gradient_descent(problem, start, **asked)
        return _with_points(run, self.change(run.points))

    def normalized_gradient_descent(self, problem: Any, start: Array, **asked: Any) -> Trajectory:
        """As :func:`reference_attention.training.descent.normalized_gradient_descent`."""
        run = descent.normalized_gradient_descent(problem, start, **asked)
        return _with_points(run, self.change(run.points))

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace(
            "", gradient_descent=self.gradient_descent, normalized_gradient_descent=self.normalized_gradient_descent
        )


@dataclass(frozen=True)
class FromElsewhere:
    """The run from another start. Called with a size it makes the fault."""

    change: Callable[[Array, float], Array]
    size: float = 0.0

    def gradient_descent(self, problem: Any, start: Array, **asked: Any) -> Trajectory:
        """As :func:`reference_attention.training.descent.gradient_descent`."""
        return descent.gradient_descent(problem, self.change(np.asarray(start), self.size), **asked)

    def normalized_gradient_descent(self, problem: Any, start: Array, **asked: Any) -> Trajectory:
        """As :func:`reference_attention.training.descent.normalized_gradient_descent`."""
        return descent.normalized_gradient_descent(problem, self.change(np.asarray(start), self.size), **asked)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        made = FromElsewhere(self.change, size)
        return REFERENCE.replace(
            "", gradient_descent=made.gradient_descent, normalized_gradient_descent=made.normalized_gradient_descent
        )


@dataclass(frozen=True)
class FlooredNorm:
    """Normalized descent that divides by ‖∇L‖ + ε, as libraries do. Called with a size it makes the fault."""

    size: float = 0.0

    def normalized_gradient_descent(
        self, problem: Any, start: Array, *, steps: int, step: float, gradient: Any
    ) -> Trajectory:
        """As :func:`reference_attention.training.descent.normalized_gradient_descent`."""
        run = descent.normalized_gradient_descent(problem, start, steps=steps, step=step, gradient=gradient)
        points = np.array(run.points)
        for t in range(steps):
            g = gradient(problem.keys, problem.scores, problem.loss, points[t])
            direction = np.asarray(g.direction)
            # ε in the gradient's own scale: nothing over- or underflows.
            floor = np.exp(math.log(self.size) - np.maximum(np.asarray(g.log_scale), -700.0))
            length = np.sqrt(np.sum(direction * direction, axis=-1)) + floor
            points[t + 1] = points[t] - step * direction / length[..., None]
        return _with_points(run, points)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", normalized_gradient_descent=FlooredNorm(size).normalized_gradient_descent)


def _with_points(run: Trajectory, points: Array) -> Trajectory:
    """The run with those iterates, and as many of the other records."""
    r = len(points)
    return replace(
        run,
        points=points,
        iterations=run.iterations[:r],
        norms=np.linalg.norm(points, axis=-1),
        log_gradient_norm=run.log_gradient_norm[:r],
        log_time=run.log_time[:r],
    )


def _stops_far_out(p: Array, step: Array, last: Array, t: int, size: float) -> Array:
    far = np.linalg.norm(p, axis=-1, keepdims=True) > size
    return np.where(far, p, p + step)


def _longer_in_one_coordinate(p: Array, step: Array, last: Array, t: int, size: float) -> Array:
    longer = np.array(step)
    longer[..., 0] *= 1 + size
    return np.asarray(p + longer)


def _momentum(p: Array, step: Array, last: Array, t: int, size: float) -> Array:
    return np.asarray(p + step + size * last)


def _decaying(p: Array, step: Array, last: Array, t: int, size: float) -> Array:
    return np.asarray(p + step / (1 + size * t))


def _one_step_skipped(p: Array, step: Array, last: Array, t: int, size: float) -> Array:
    return p if t == 10 else np.asarray(p + step)


def _weight_decay(p: Array, step: Array, last: Array, t: int, size: float) -> Array:
    return np.asarray((1 - size) * p + step)


def _clip_step(p: Array, step: Array, last: Array, t: int, size: float) -> Array:
    length = np.linalg.norm(step, axis=-1, keepdims=True)
    longest = size * np.linalg.norm(p, axis=-1, keepdims=True)
    return np.asarray(p + np.where(length > longest, 0.5, 1.0) * step)


def _zero(start: Array, size: float) -> Array:
    return np.zeros_like(start)


def _stretch(start: Array, size: float) -> Array:
    return (1 + size) * start


def _one_short(points: Array) -> Array:
    return points[:-1]


def _average(points: Array) -> Array:
    counts = np.arange(1.0, len(points) + 1).reshape(-1, *([1] * (points.ndim - 1)))
    return np.asarray(np.cumsum(points, axis=0) / counts)


DESCENT_FAULTS = (
    Fault(
        "descent-stops-far-out",
        Kind.RUN,
        "iterates stay where they are once ‖p‖ exceeds a bound",
        "theorem-2",
        Loop(_stops_far_out),
        10.0,
        "the bound",
    ),
    Fault(
        "descent-coordinate-longer",
        Kind.RUN,
        "(1 + ε) η in the first coordinate",
        "lemma-1",
        Loop(_longer_in_one_coordinate),
        0.3,
        "ε",
    ),
    Fault("descent-with-momentum", Kind.RUN, "p + step + β (the step before)", "lemma-1", Loop(_momentum), 0.1, "β"),
    Fault("descent-step-decays", Kind.RUN, "η/(1 + ε t) at iteration t", "lemma-1", Loop(_decaying), 1e-2, "ε"),
    Fault("descent-skips-a-step", Kind.RUN, "the eleventh step is not taken", "lemma-6", Loop(_one_step_skipped)),
    Fault(
        "descent-decays-weights",
        Kind.RUN,
        "(1 − λ) p + step: decoupled weight decay",
        "lemma-1",
        Loop(_weight_decay),
        1e-3,
        "λ",
    ),
    Fault(
        "descent-clips-steps",
        Kind.RUN,
        "steps longer than ε ‖p‖ are halved",
        "lemma-1",
        Loop(_clip_step),
        1e-2,
        "ε",
    ),
    Fault("descent-from-zero", Kind.RUN, "the start is ignored: p(0) = 0", "lemma-1", FromElsewhere(_zero)),
    Fault(
        "descent-from-elsewhere",
        Kind.RUN,
        "p(0) is (1 + ε) times the start",
        "lemma-1",
        FromElsewhere(_stretch),
        1e-6,
        "ε",
    ),
    Fault("descent-one-step-short", Kind.RUN, "the last iterate is not returned", "theorem-2", Recorded(_one_short)),
    Fault("descent-averages", Kind.RUN, "running means of the iterates are returned", "lemma-1", Recorded(_average)),
    Fault(
        "normalized-with-floor",
        Kind.RUN,
        "steps of ∇L/(‖∇L‖ + ε)",
        "theorem-2",
        FlooredNorm(),
        1e-3,
        "ε",
        1e-300,
    ),
)
"""Faults in the loop of gradient descent."""
