"""Faults in the regularization paths: the risk is right, and what is found is not its minimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.losses import loss_named
from reference_attention.paths import local_path as local
from reference_attention.paths import regularization_path as reference
from reference_attention.paths.local_path import LocalPath
from reference_attention.paths.regularization_path import Path
from reference_attention.problem import Problem
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind


@dataclass(frozen=True)
class MovedPath:
    """The right path with other points: (path, size) → points. Called with a size it makes the fault."""

    change: Callable[[Path, float], Array]
    size: float = 0.0

    def path(self, problem: Problem, norms: Any, **asked: Any) -> Path:
        """As :func:`reference_attention.paths.regularization_path.regularization_path`."""
        right = reference.regularization_path(problem, norms, **asked)
        points = np.asarray(self.change(right, self.size))
        solution = asked.get("max_margin")
        if solution is None:
            return replace(right, points=points)
        unit = solution.direction
        return replace(right, points=points, offsets=points - (points @ unit)[:, None] * unit)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", regularization_path=MovedPath(self.change, size).path)


@dataclass(frozen=True)
class OtherPath:
    """The path of another problem or of other radii. Called with a size it makes the fault."""

    change: Callable[[Problem, Array, float], tuple[Problem, Array]]
    size: float = 0.0

    def path(self, problem: Problem, norms: Any, **asked: Any) -> Path:
        """As :func:`reference_attention.paths.regularization_path.regularization_path`."""
        return reference.regularization_path(*self.change(problem, np.asarray(norms), self.size), **asked)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", regularization_path=OtherPath(self.change, size).path)


@dataclass(frozen=True)
class LeavesRadiiOut:
    """The right path, of which one point alone is said to have converged."""

    def path(self, problem: Problem, norms: Any, **asked: Any) -> Path:
        """As :func:`reference_attention.paths.regularization_path.regularization_path`."""
        right = reference.regularization_path(problem, norms, **asked)
        last = np.arange(len(right.norms)) == len(right.norms) - 1
        reasons = tuple(reason if kept else "it was given up" for reason, kept in zip(right.reasons, last, strict=True))
        return replace(right, converged=right.converged & last, reasons=reasons)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", regularization_path=self.path)


@dataclass(frozen=True)
class LocalPathOf:
    """The local path with other points: (path, q) → points. Called with a size it makes the fault."""

    change: Callable[[LocalPath, Array], Array]

    def path(self, problem: Problem, q: Array, alpha: Array, norms: Any, **asked: Any) -> LocalPath:
        """As :func:`reference_attention.paths.local_path.local_path`."""
        right = local.local_path(problem, q, alpha, norms, **asked)
        return replace(right, points=self.change(right, np.asarray(q)))

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", local_path=self.path)


def _start_returned(path: Path, size: float) -> Array:
    """The same direction at every radius, which minimises nothing."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(path.points.shape[1])
    return path.norms[:, None] * (start / np.linalg.norm(start))


def _on_the_ray(path: Path, size: float) -> Array:
    """The limit instead of the path: R times the direction at the largest radius."""
    last = path.points[-1] / np.linalg.norm(path.points[-1])
    return path.norms[:, None] * last


def _move_along_the_sphere(path: Path, size: float) -> Array:
    """Some way beside the minimum, as an optimiser that ends early does."""
    across = np.roll(path.points, 1, axis=1)
    length = path.norms[:, None]
    across = across - np.sum(across * path.points, axis=1, keepdims=True) / length**2 * path.points
    sizes = np.linalg.norm(across, axis=1, keepdims=True)
    moved = path.points + np.where(sizes > 0, size * length / np.where(sizes > 0, sizes, 1.0), 0.0) * across
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True) * length)


def _half_the_radius(problem: Problem, norms: Array, size: float) -> tuple[Problem, Array]:
    return problem, norms / 2


def _twice_the_radius(path: Path, size: float) -> Array:
    """The right directions."""
    return 2 * path.points


def _at_one_radius(path: Path, size: float) -> Array:
    return np.repeat(path.points[:1], len(path.points), axis=0)


def _another_loss(problem: Problem, norms: Array, size: float) -> tuple[Problem, Array]:
    name = "correlation" if problem.loss.name != "correlation" else "exponential"
    return Problem(problem.keys, problem.scores, loss_named(name)), norms


def _other_scores(problem: Problem, norms: Array, size: float) -> tuple[Problem, Array]:
    scores = np.array(problem.scores)
    scores[0] *= 1 + size
    return Problem(problem.keys, scores, problem.loss), norms


def _on_q(path: LocalPath, q: Array) -> Array:
    return path.norms[:, None] * (q / np.linalg.norm(q))


def _local_at_twice_the_radius(path: LocalPath, q: Array) -> Array:
    return 2 * path.points


def _local_at_one_radius(path: LocalPath, q: Array) -> Array:
    return np.repeat(path.points[-1:], len(path.points), axis=0)


PATH_FAULTS = (
    Fault("path-unminimised", Kind.RUN, "a random start is returned as it is", "theorem-1", MovedPath(_start_returned)),
    Fault("path-at-half-the-radius", Kind.RUN, "the path at R/2", "theorem-1", OtherPath(_half_the_radius)),
    Fault("path-at-twice-the-radius", Kind.RUN, "2p̄(R) for p̄(R)", "theorem-1", MovedPath(_twice_the_radius)),
    Fault(
        "path-at-one-radius", Kind.RUN, "the first point is returned for all", "theorem-1", MovedPath(_at_one_radius)
    ),
    Fault("path-leaves-radii-out", Kind.RUN, "a point at the largest radius alone", "theorem-1", LeavesRadiiOut()),
    Fault("path-of-another-loss", Kind.RUN, "the path of another loss", "theorem-1", OtherPath(_another_loss)),
    Fault(
        "path-of-other-scores",
        Kind.RUN,
        "the first input's scores are (1 + ε) times as large",
        "theorem-1",
        OtherPath(_other_scores),
        1e-2,
        "ε",
    ),
    Fault(
        "path-is-its-limit",
        Kind.RUN,
        "the direction found at the largest radius is returned at all",
        "theorem-1",
        MovedPath(_on_the_ray),
    ),
    Fault(
        "path-ends-early",
        Kind.RUN,
        "points ε R beside the minimum",
        "theorem-1",
        MovedPath(_move_along_the_sphere),
        1e-6,
        "ε",
    ),
    Fault(
        "local-path-at-twice-the-radius",
        Kind.RUN,
        "2p̄(R) for p̄(R)",
        "theorem-4",
        LocalPathOf(_local_at_twice_the_radius),
    ),
    Fault(
        "local-path-at-one-radius",
        Kind.RUN,
        "the last point is returned for all",
        "theorem-4",
        LocalPathOf(_local_at_one_radius),
    ),
    Fault("local-path-stays-on-q", Kind.RUN, "R q instead of the local path", "theorem-4", LocalPathOf(_on_q)),
)
"""Faults in the regularization paths."""
