"""The work of ``theorems bench``, cut into units that can be sent to other processes.

A unit is a data set, or a chunk of the generated problems; chunks have a fixed size, so that the numbers do not depend
on how many processes there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.random_trials import random_trial
from reference_attention.problem import Problem
from theorems.benchmark.measure import Limit, Measured, limit_of, measured
from theorems.benchmark.rules import rule_named
from theorems.core.implementation import REFERENCE, Implementation
from theorems.run.user_data import load

Progress = Callable[[int], None]

DIMENSION = 10
"""d of the generated problems; n and T are those of the paper's random trials."""
CHUNK = 10
"""Generated problems that are run together."""
TURNING = dict.fromkeys(("figure-1a", "figure-1b", "figure-1c", "figure-4"), (0.0, -1.0))
"""Starts on the side of Figure 1 that has to turn."""


@dataclass(frozen=True)
class Compared:
    """One problem and what the rules did on it.

    Attributes:
        name: of the data.
        start: p(0).
        alpha: the tokens of the limit; empty without one.
        kind: GMM or LMM.
        limit: p̄_mm of those tokens.
        margin: Θ = 1/‖p_mm‖.
        no_limit: why there is no limit to compare with; the rules were then not run.
        rules: one entry per rule.
    """

    name: str
    start: tuple[float, ...]
    alpha: tuple[int, ...] = ()
    kind: str = ""
    limit: tuple[float, ...] = ()
    margin: float = 0.0
    no_limit: str = ""
    rules: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class Batch:
    """What a unit results in."""

    id: str
    compared: tuple[Compared, ...] = ()
    failed: str = ""
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """For a line of progress."""
        without = sum(bool(one.no_limit) for one in self.compared)
        said = f"{without} without a limit, " if without else ""
        return self.failed or f"{len(self.compared)} problem(s), {said}{self.seconds:.1f} s"


@dataclass(frozen=True)
class Named:
    """A data set, by file or name."""

    source: str
    rules: tuple[str, ...]
    steps: int
    under_test: Implementation = REFERENCE

    @property
    def id(self) -> str:
        """The name."""
        return self.source

    @property
    def total(self) -> int | None:
        """Rules."""
        return len(self.rules)

    def run(self, progress: Progress) -> Batch:
        """The comparison."""
        case = load(self.source, 0).case
        found, seconds = _compared([case.problem], [start_of(self.source, case)], [self.source], self, progress)
        return Batch(self.id, found, seconds=seconds)

    def unfinished(self, why: str) -> Batch:
        """None."""
        return Batch(self.id, failed=why or "interrupted")


@dataclass(frozen=True)
class Generated:
    """The random problems ``first`` to ``last`` − 1 of a seed, all started at 0."""

    seed: int
    first: int
    last: int
    rules: tuple[str, ...]
    steps: int
    under_test: Implementation = REFERENCE

    @property
    def id(self) -> str:
        """Which ones."""
        return f"generated {self.first + 1}-{self.last}"

    @property
    def total(self) -> int | None:
        """Rules."""
        return len(self.rules)

    def run(self, progress: Progress) -> Batch:
        """The comparisons."""
        numbers = range(self.first, self.last)
        problems = [random_trial(self.seed, DIMENSION, k).problem for k in numbers]
        names = [f"generated {k + 1}" for k in numbers]
        found, seconds = _compared(problems, [np.zeros(DIMENSION)] * len(problems), names, self, progress)
        return Batch(self.id, found, seconds=seconds)

    def unfinished(self, why: str) -> Batch:
        """None."""
        return Batch(self.id, failed=why or "interrupted")


def chunks(seed: int, examples: int, rules: tuple[str, ...], steps: int) -> list[Generated]:
    """The generated problems as units."""
    return [Generated(seed, k, min(k + CHUNK, examples), rules, steps) for k in range(0, examples, CHUNK)]


def start_of(source: str, case: Case) -> Float64[np.ndarray, "d"]:
    """The start of the data, the one of the figure that has to turn, the first of a figure's, or 0."""
    if case.start is not None:
        return case.start
    if source in TURNING:
        return np.array(TURNING[source])
    if "start_prompts" in case.arrays:
        return np.array(case.arrays["start_prompts"][0])
    return np.zeros(case.problem.d)


def _compared(
    problems: list[Problem],
    starts: list[Float64[np.ndarray, "d"]],
    names: list[str],
    unit: Named | Generated,
    progress: Progress,
) -> tuple[tuple[Compared, ...], float]:
    began = time.perf_counter()
    limits = [limit_of(problem, start, unit.under_test) for problem, start in zip(problems, starts, strict=True)]
    there = [k for k, limit in enumerate(limits) if isinstance(limit, Limit)]
    some, targets = [problems[k] for k in there], [limit for limit in limits if isinstance(limit, Limit)]
    runs: list[list[Measured]] = [[] for _ in problems]
    for done, name in enumerate(unit.rules if there else ()):
        run = rule_named(name).run(some, np.stack([starts[k] for k in there]), unit.steps, unit.under_test)
        for k, one in zip(there, measured(name, run, some, targets), strict=True):
            runs[k].append(one)
        progress(done + 1)
    made = tuple(
        _one(name, start, limit, rules) for name, start, limit, rules in zip(names, starts, limits, runs, strict=True)
    )
    return made, time.perf_counter() - began


def _one(name: str, start: Float64[np.ndarray, "d"], limit: Limit | str, rules: list[Measured]) -> Compared:
    begin = tuple(start.tolist())
    if isinstance(limit, str):
        return Compared(name, begin, no_limit=limit)
    svm = limit.svm
    where = tuple(svm.direction.tolist())
    return Compared(name, begin, tuple(svm.alpha.tolist()), limit.kind.value, where, svm.margin, "", tuple(rules))
