"""A rule, followed: its iterates from a batch of starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.angles import one_minus_cosine_along
from reference_attention.problem import LARGEST_MAGNITUDE, Problem
from reference_attention.risk import ScaledGradient
from reference_attention.training.iteration import batch_field, single_field
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting
from theorems.core.implementation import REFERENCE, Implementation

Progress = Callable[[int], None]
OFTEN = 250
"""Iterations between two words about a run."""


class NotAPoint(Exception):
    """A rule returned something else than the next point."""


@dataclass(frozen=True, eq=False)
class Run:
    """Iterates of a rule from b starts.

    Attributes:
        points: p(t), (r, b, d).
        iterations: t, (r,).
        representable: (b,), false where a step led to what is not finite or too large to be squared; such a start stays
            where it was.
    """

    points: Float64[np.ndarray, "r b d"]
    iterations: Int64[np.ndarray, "r"]
    representable: Bool[np.ndarray, "b"]

    @property
    def norms(self) -> Float64[np.ndarray, "r b"]:
        """‖p(t)‖."""
        return np.asarray(np.linalg.norm(self.points, axis=-1))

    @property
    def final(self) -> Float64[np.ndarray, "b d"]:
        """The last iterate."""
        return np.asarray(self.points[-1])

    def one_minus_cosine(self, unit: Float64[np.ndarray, "b d"]) -> Float64[np.ndarray, "r b"]:
        """1 − cos∠(p(t), unit), without cancellation; NaN at 0."""
        return one_minus_cosine_along(self.points, self.norms, unit)


def recorded_iterations(steps: int, every: int) -> Int64[np.ndarray, "r"]:
    """Every that many iterations, and the first and the last."""
    return np.unique(np.append(np.arange(0, steps + 1, every), steps)).astype(np.int64)


def nothing(done: int) -> None:
    """Says nothing."""


def follow(
    made: Callable[[], Optimiser],
    problems: Sequence[Problem],
    starts: Float64[np.ndarray, "b d"],
    steps: int,
    under_test: Implementation = REFERENCE,
    *,
    shape: tuple[int, ...] | None = None,
    record_every: int = 1,
    progress: Progress = nothing,
) -> Run:
    """The iterates of a rule, all problems at once if it is batched and otherwise one after another.

    Args:
        made: makes the rule anew.
        problems: as many as starts, of one shape and loss.
        shape: of what is trained, (d,) unless it is vec(W).
        progress: told how many iterations are done, over all problems.

    Raises:
        NotAPoint: a step is not an array of numbers of the shape of p.
    """
    shape = shape or (starts.shape[1],)
    iterations = recorded_iterations(steps, record_every)
    rule = made()
    if rule.batched:
        setting = Setting(tuple(problems), starts, shape, under_test)
        field = batch_field(
            np.stack([problem.keys for problem in problems]),
            np.stack([problem.scores for problem in problems]),
            problems[0].loss,
            under_test.scaled_gradient,
            (len(problems),),
        )
        return Run(*_iterate(rule, setting, field, iterations, progress, 0))
    found = []
    for k, problem in enumerate(problems):
        own = single_field(problem.keys, problem.scores, problem.loss, under_test.scaled_gradient)
        setting = Setting((problem,), np.array(starts[k]), shape, under_test)
        found.append(_iterate(made(), setting, own, iterations, progress, k * steps))
    return Run(
        np.stack([points for points, _, _ in found], axis=1), iterations, np.array([bool(ok) for _, _, ok in found])
    )


def _iterate(
    rule: Optimiser, setting: Setting, field: Any, iterations: Int64[np.ndarray, "r"], progress: Progress, before: int
) -> tuple[Float64[np.ndarray, "r *b d"], Int64[np.ndarray, "r"], Bool[np.ndarray, "*b"]]:
    p = np.array(setting.start)
    points, ok, record = np.empty((len(iterations), *p.shape)), np.ones(p.shape[:-1], dtype=np.bool_), 0
    with np.errstate(all="ignore"):
        rule.begin(setting)
        for t in range(int(iterations[-1]) + 1):
            if t == iterations[record]:
                points[record] = p
                record += 1
            if t == iterations[-1]:
                break
            if t % OFTEN == 0:
                progress(before + t)
            gradient = ScaledGradient(*field(p))
            moved = rule.step(p, gradient)
            if not rule.batched:
                moved = _point(moved, p.shape, type(rule).__name__)
            ok = np.asarray(ok & (np.abs(moved) <= LARGEST_MAGNITUDE).all(axis=-1))
            p = np.where(ok[..., None], moved, p)
    return points, iterations, ok


def _point(moved: Any, shape: tuple[int, ...], name: str) -> Float64[np.ndarray, "d"]:
    array = np.asarray(moved)
    if array.dtype.kind not in "fiu" or array.shape != shape:
        raise NotAPoint(f"step of {name} returned {array.dtype} of shape {array.shape}; return float64 of {shape}")
    return array.astype(np.float64)
