"""Units of work of ``theorems bench``, which can be sent to other processes.

A unit runs rules on a data set, or on ten generated problems; this number is fixed, so that results do not depend on
how many processes there are. A rule in a user's file has units of its own, which run in other processes than the rules
of this package.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.random_trials import random_trial
from generators.user_data import attention_case, load
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from theorems.benchmark.comparison import Comparison, Progress, compare
from theorems.benchmark.measurements import NoLimit
from theorems.benchmark.optimisers.run import NotAPoint
from theorems.core.check import line_in
from theorems.core.implementation import REFERENCE, Implementation
from theorems.run.registry.user_file import is_in_a_file, parts_of

Problems = tuple[Sequence[Problem], Sequence[Float64[np.ndarray, "d"]], Sequence[str], tuple[int, ...]]
"""The problems, their starts p(0), their names, and the shape of the trained parameter, which they share."""

DIMENSION = 10
"""The dimension d of the generated problems; n and T are as in the paper's random trials."""
CHUNK = 10
"""The number of generated problems in a unit of work."""
TURNING = dict.fromkeys(("figure-1a", "figure-1b", "figure-1c", "figure-4"), (0.0, -1.0))
"""Starts p(0), for the data of Figures 1 and 4, from which the flow at first moves away from the limit direction."""


@dataclass(frozen=True)
class Batch:
    """The result of a unit of work: a comparison for each problem, or the reason why the unit failed."""

    id: str
    compared: tuple[Comparison, ...] = ()
    failed: str = ""
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """The result in a few words, for a line of progress."""
        without = sum(bool(comparison.no_limit) for comparison in self.compared)
        exceptions = f"{without} without a limit, " if without else ""
        return self.failed or f"{len(self.compared)} problem(s), {exceptions}{self.seconds:.1f} s"


class _Unit:
    """A unit of work: the rules with the names ``rules``, run on data for ``steps`` iterations."""

    rules: tuple[str, ...]
    steps: int
    under_test: Implementation

    @property
    def data_name(self) -> str:
        """The name of the data."""
        raise NotImplementedError

    @property
    def foreign(self) -> bool:
        """True if the unit runs a user's code, which may end the process."""
        return any(map(is_in_a_file, self.rules))

    @property
    def id(self) -> str:
        """The name of the unit: that of the data, followed by the rule's name if the rule is in a user's file."""
        return f"{self.data_name}, {', '.join(self.rules)}" if self.foreign else self.data_name

    @property
    def total(self) -> int | None:
        """The number of rules; None for a user's rule, which reports iterations whose total is not yet known."""
        return None if self.foreign else len(self.rules)

    def where(self, done: int | None) -> str:
        """Return, as a phrase for messages, how far a user's rule has come after ``done`` iterations."""
        return "while it was loaded" if done is None else f"after iteration {done}"

    def unfinished_result(self, why: str) -> Batch:
        """Return a result without comparisons, with the reason ``why``."""
        return Batch(self.id, failed=why or "interrupted")

    def run(self, progress: Progress) -> Batch:
        """Run and compare the rules; if a user's file raises an error, return a result that names error and line."""
        began = time.perf_counter()
        try:
            problems, starts, names, shape = self._problems()
            settings = (self.rules, self.steps, self.under_test, progress)
            comparisons = compare(
                problems, starts, names, *settings, shape=shape, keys=self._keys(), foreign=self.foreign
            )
        except NoLimit as error:
            return Batch(self.id, failed=str(error))
        except (Exception, SystemExit) as error:
            if not self.foreign:
                raise
            path, _ = parts_of(self.rules[0])
            line = line_in(path, error)
            kind = "" if isinstance(error, NotAPoint) else f"{type(error).__name__}: "
            message = " ".join(str(error).split()) or "no message"
            return Batch(self.id, failed=f"{path}{f', line {line}' if line else ''}: {kind}{message}")
        return Batch(self.id, comparisons, seconds=time.perf_counter() - began)

    def _problems(self) -> Problems:
        raise NotImplementedError

    def _keys(self) -> OuterKeys | None:
        """Return the factors x and z of the keys x zᵀ if W is trained, else None."""
        return None


@dataclass(frozen=True)
class Named(_Unit):
    """The unit of work for a data set, given by file or name."""

    source: str
    rules: tuple[str, ...]
    steps: int
    under_test: Implementation = REFERENCE

    @property
    def data_name(self) -> str:
        """The file or name of the data set."""
        return self.source

    def _problems(self) -> Problems:
        case = attention_case(load(self.source, 0))
        return [case.problem], [start_of(self.source, case)], [self.source], shape_of(case)

    def _keys(self) -> OuterKeys | None:
        queried = attention_case(load(self.source, 0)).queried
        return None if queried is None else queried.keys


@dataclass(frozen=True)
class Generated(_Unit):
    """The unit of work for the random problems number ``first`` to ``last`` − 1 of a seed, each started at p(0) = 0."""

    seed: int
    first: int
    last: int
    rules: tuple[str, ...]
    steps: int
    under_test: Implementation = REFERENCE

    @property
    def data_name(self) -> str:
        """The word ``generated`` with the numbers of the first and the last problem, counted from 1."""
        return f"generated {self.first + 1}-{self.last}"

    def _problems(self) -> Problems:
        numbers = range(self.first, self.last)
        problems = [random_trial(self.seed, DIMENSION, k).problem for k in numbers]
        names = [f"generated {k + 1}" for k in numbers]
        return problems, [np.zeros(DIMENSION)] * len(problems), names, (DIMENSION,)


def chunks(seed: int, examples: int, rules: tuple[str, ...], steps: int) -> list[Generated]:
    """Return units of work for the generated problems, :data:`CHUNK` problems in each."""
    return [Generated(seed, k, min(k + CHUNK, examples), rules, steps) for k in range(0, examples, CHUNK)]


def units(
    sources: Sequence[str], rules: Sequence[str], steps: int, seed: int, examples: int
) -> list[Named | Generated]:
    """Return the units of data sets, then those of generated problems; each rule in a user's file has its own units."""
    ours = tuple(rule for rule in rules if not is_in_a_file(rule))
    groups = [ours] * bool(ours) + [(rule,) for rule in rules if is_in_a_file(rule)]
    named = [Named(source, group, steps) for source in sources for group in groups]
    return named + [unit for group in groups for unit in chunks(seed, examples, group, steps)]


def shape_of(case: Case) -> tuple[int, ...]:
    """Return the shape of the trained parameter: (d,) for a prompt p, (d, e) for W."""
    dataset = case.queried or case.sequence
    return (case.problem.d,) if dataset is None else dataset.shape


def start_of(source: str, case: Case) -> Float64[np.ndarray, "d"]:
    """Return the start in the data, if any, else that in :data:`TURNING`, else the paper's first start, else 0."""
    if case.start is not None:
        return case.start
    if source in TURNING:
        return np.array(TURNING[source])
    if "start_prompts" in case.arrays:
        return np.array(case.arrays["start_prompts"][0])
    return np.zeros(case.problem.d)
