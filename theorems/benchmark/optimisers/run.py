"""Runs of a rule that trains p: its iterates from a batch of starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.angles import one_minus_cosine_along
from reference_attention.problem import LARGEST_MAGNITUDE, Problem
from reference_attention.risk import ScaledGradient, scaled_gradient
from reference_attention.training.iteration import batch_field, single_field
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting
from theorems.core.implementation import REFERENCE, Implementation

Progress = Callable[[int], None]
OFTEN = 250
"""The number of iterations between two reports of progress."""


class NotAPoint(Exception):
    """Error: a step of a rule returned something other than an array of numbers of the shape of p."""


@dataclass(frozen=True, eq=False)
class Run:
    """Iterates of a rule from b starts.

    Attributes:
        points: the iterates p(t), (r, b, d).
        iterations: the numbers t of these iterates, (r,).
        representable: the mask of the runs all of whose steps led to points that are finite and not too large to be
            squared, (b,); a run ends before its first step to another point.
    """

    points: Float64[np.ndarray, "r b d"]
    iterations: Int64[np.ndarray, "r"]
    representable: Bool[np.ndarray, "b"]

    @property
    def norms(self) -> Float64[np.ndarray, "r b"]:
        """The norms ‖p(t)‖ of the iterates, (r, b)."""
        return np.asarray(np.linalg.norm(self.points, axis=-1))

    @property
    def final(self) -> Float64[np.ndarray, "b d"]:
        """The last iterate, (b, d)."""
        return np.asarray(self.points[-1])

    def one_minus_cosine(self, unit: Float64[np.ndarray, "b d"]) -> Float64[np.ndarray, "r b"]:
        """Return 1 − cos∠(p(t), unit) for the unit vector of each run, without cancellation; NaN at p = 0."""
        return one_minus_cosine_along(self.points, self.norms, unit)


def recorded_iterations(steps: int, every: int) -> Int64[np.ndarray, "r"]:
    """Return the multiples of ``every`` up to ``steps``, and ``steps`` itself."""
    return np.unique(np.append(np.arange(0, steps + 1, every), steps)).astype(np.int64)


def nothing(done: int) -> None:
    """Ignore the number of iterations done; used where no progress is shown."""


def follow(
    make_rule: Callable[[], Optimiser],
    problems: Sequence[Problem],
    starts: Float64[np.ndarray, "b d"],
    steps: int,
    under_test: Implementation = REFERENCE,
    *,
    shape: tuple[int, ...] | None = None,
    record_every: int = 1,
    progress: Progress = nothing,
) -> Run:
    """Run a rule on problems: on all at once if the rule is batched, otherwise on one after another.

    Args:
        make_rule: a function that returns a new instance of the rule.
        problems: one problem per start, all of one shape and loss.
        starts: p(0), (b, d).
        steps: the number of iterations.
        under_test: the implementation that computes gradients.
        shape: the shape of the trained parameter, (d,) unless p is vec(W).
        record_every: the number m such that every m-th iterate is recorded, besides the first and the last.
        progress: called with the number of iterations done, over all problems.

    Raises:
        NotAPoint: a step did not return an array of numbers of the shape of p.
    """
    shape = shape or (starts.shape[1],)
    iterations = recorded_iterations(steps, record_every)
    rule = make_rule()
    if rule.batched:
        setting = Setting(tuple(problems), starts, shape, under_test)
        field = batch_field(
            np.stack([problem.keys for problem in problems]),
            np.stack([problem.scores for problem in problems]),
            problems[0].loss,
            under_test[scaled_gradient],
            (len(problems),),
        )
        return Run(*_iterate(rule, setting, field, iterations, progress, 0))
    runs = []
    for k, problem in enumerate(problems):
        problem_field = single_field(problem.keys, problem.scores, problem.loss, under_test[scaled_gradient])
        setting = Setting((problem,), np.array(starts[k]), shape, under_test)
        runs.append(_iterate(make_rule(), setting, problem_field, iterations, progress, k * steps))
    return Run(
        np.stack([points for points, _, _ in runs], axis=1), iterations, np.array([bool(ok) for _, _, ok in runs])
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
