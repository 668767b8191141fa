"""Faults in the regularization paths: the risk is right, but the points do not minimise it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.losses import loss_named
from reference_attention.paths.local_path import LocalPath, local_path
from reference_attention.paths.regularization_path import Path, regularization_path
from reference_attention.problem import Problem
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.RUN)
PATH = ("theorem-1", regularization_path)
LOCAL = ("theorem-4", local_path)
"""The statement that catches faults of local paths, and the function that they replace; :data:`PATH` likewise for
others."""
RightPath = Callable[..., Path]


def _with_points(path: Path, points: Array, max_margin: Any = None, **options: Any) -> Path:
    """Return the path with other points, and with their offsets from the ray of the max-margin direction."""
    if max_margin is None:
        return replace(path, points=points)
    unit = max_margin.direction
    return replace(path, points=points, offsets=points - (points @ unit)[:, None] * unit)


@FAULTS.change("path-unminimised", "one random direction is returned at all radii", *PATH)
def _random_direction(path: Path, *arguments: Any, **options: Any) -> Path:
    """Return the same random direction, which minimises nothing, at every radius."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(path.points.shape[1])
    return _with_points(path, path.norms[:, None] * (start / np.linalg.norm(start)), **options)


@FAULTS.plant("path-at-half-the-radius", "p̄(R/2) in place of p̄(R)", *PATH)
def _halve_radii(right: RightPath, problem: Problem, norms: Any, **options: Any) -> Path:
    return right(problem, np.asarray(norms) / 2, **options)


@FAULTS.change("path-at-twice-the-radius", "2p̄(R) in place of p̄(R)", *PATH)
def _double(path: Path, *arguments: Any, **options: Any) -> Path:
    return _with_points(path, 2 * path.points, **options)


@FAULTS.change("path-at-one-radius", "the first point is returned for all radii", *PATH)
def _repeat_first(path: Path, *arguments: Any, **options: Any) -> Path:
    return _with_points(path, np.repeat(path.points[:1], len(path.points), axis=0), **options)


@FAULTS.change("path-leaves-radii-out", "only the point at the largest radius is returned", *PATH)
def _give_up(path: Path, *arguments: Any, **options: Any) -> Path:
    """Report that only the last point has converged."""
    last = np.arange(len(path.norms)) == len(path.norms) - 1
    reasons = tuple(
        reason if converged else "it was given up" for reason, converged in zip(path.reasons, last, strict=True)
    )
    return replace(path, converged=path.converged & last, reasons=reasons)


def on_other_problem(change: Callable[..., Problem], right: Any, *arguments: Any, **options: Any) -> Any:
    """Call ``right`` on the problem ``change(problem)``, or ``change(problem, size)`` if the fault has a size."""
    *size, problem = arguments[: 1 + isinstance(arguments[0], float)]
    return right(change(problem, *size), *arguments[1 + len(size) :], **options)


@FAULTS.plant("path-of-another-loss", "the path is that of another loss", *PATH, through=on_other_problem)
def with_another_loss(problem: Problem) -> Problem:
    """Return the problem with the correlation loss, or with the exponential loss if it has that loss already."""
    name = "correlation" if problem.loss.name != "correlation" else "exponential"
    return Problem(problem.keys, problem.scores, loss_named(name))


SCALED = "the scores of the first input are multiplied by 1 + ε"


@FAULTS.plant("path-of-other-scores", SCALED, *PATH, size=1e-2, through=on_other_problem)
def with_scaled_scores(problem: Problem, size: float) -> Problem:
    """Return the problem with the scores of its first input multiplied by 1 + ``size``."""
    scores = np.array(problem.scores)
    scores[0] *= 1 + size
    return Problem(problem.keys, scores, problem.loss)


@FAULTS.change("path-is-its-limit", "the direction at the largest radius is returned at all radii", *PATH)
def _repeat_limit(path: Path, *arguments: Any, **options: Any) -> Path:
    last = path.points[-1] / np.linalg.norm(path.points[-1])
    return _with_points(path, path.norms[:, None] * last, **options)


@FAULTS.change("path-ends-early", "points lie ε R beside the minimum", *PATH, size=1e-6)
def _move_along_the_sphere(path: Path, size: float, *arguments: Any, **options: Any) -> Path:
    """Move every point sideways by ``size`` times R, as if an optimiser had stopped early."""
    across = np.roll(path.points, 1, axis=1)
    length = path.norms[:, None]
    across = across - np.sum(across * path.points, axis=1, keepdims=True) / length**2 * path.points
    sizes = np.linalg.norm(across, axis=1, keepdims=True)
    moved = path.points + np.where(sizes > 0, size * length / np.where(sizes > 0, sizes, 1.0), 0.0) * across
    return _with_points(path, moved / np.linalg.norm(moved, axis=1, keepdims=True) * length, **options)


@FAULTS.change("local-path-at-twice-the-radius", "2p̄(R) in place of p̄(R)", *LOCAL)
def _double_local(path: LocalPath, *arguments: Any, **options: Any) -> LocalPath:
    return replace(path, points=2 * path.points)


@FAULTS.change("local-path-at-one-radius", "the last point is returned for all radii", *LOCAL)
def _repeat_last(path: LocalPath, *arguments: Any, **options: Any) -> LocalPath:
    return replace(path, points=np.repeat(path.points[-1:], len(path.points), axis=0))


@FAULTS.change("local-path-stays-on-q", "the point R q in place of the local path's point", *LOCAL)
def _stay_on_q(path: LocalPath, problem: Problem, q: Array, *arguments: Any, **options: Any) -> LocalPath:
    return replace(path, points=path.norms[:, None] * (q / np.linalg.norm(q)))
