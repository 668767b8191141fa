"""What the rules did on problems: their limits, their runs, and what is measured of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from reference_attention.svm.least_power_norm import LeastPowerNorm
from theorems.benchmark.measure import Limit, Limits, Measurement, limit_of, measure
from theorems.benchmark.optimisers.run import nothing
from theorems.benchmark.rules import rule_named
from theorems.core.implementation import Implementation

Progress = Callable[[int], None]


@dataclass(frozen=True)
class PowerLimit:
    """The solution of ATT-SVM in ‖p‖_q, q ≠ 2, for the tokens of the limit.

    Attributes:
        norm: q.
        direction: p/‖p‖.
        margin: 1/‖p‖_q.
        residual: of its KKT conditions.
    """

    norm: float
    direction: tuple[float, ...]
    margin: float
    residual: float


@dataclass(frozen=True)
class Comparison:
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
        powers: the limits of mirror descent that were compared with.
    """

    name: str
    start: tuple[float, ...]
    alpha: tuple[int, ...] = ()
    kind: str = ""
    limit: tuple[float, ...] = ()
    margin: float = 0.0
    no_limit: str = ""
    rules: tuple[Measurement, ...] = ()
    powers: tuple[PowerLimit, ...] = ()


def compare(
    problems: Sequence[Problem],
    starts: Sequence[Float64[np.ndarray, "d"]],
    names: Sequence[str],
    rules: Sequence[str],
    steps: int,
    under_test: Implementation,
    progress: Progress,
    *,
    shape: tuple[int, ...],
    keys: OuterKeys | None = None,
    foreign: bool = False,
) -> tuple[Comparison, ...]:
    """All rules on problems of one shape and loss, one start each.

    Args:
        progress: told how many rules are done; of somebody else's (``foreign``) how many iterations.
        shape: of what is trained.
        keys: the factors of the keys, where that is W.

    Raises:
        NoLimit, NotAPoint: see there.
    """
    limits: list[Limit | str] = []
    for problem, start in zip(problems, starts, strict=True):
        limits.append(limit_of(problem, start, under_test))
        progress(0)  # this is none of the time of somebody else's rule
    there = [k for k, limit in enumerate(limits) if isinstance(limit, Limit)]
    some = [problems[k] for k in there]
    targets = [Limits(problems[k], limit, keys) for k, limit in enumerate(limits) if isinstance(limit, Limit)]
    runs: list[list[Measurement]] = [[] for _ in problems]
    powers: list[tuple[PowerLimit, ...]] = [() for _ in problems]
    for done, name in enumerate(rules if there else ()):
        rule = rule_named(name)
        at = np.stack([starts[k] for k in there])
        run = rule.run(some, at, steps, under_test, shape=shape, progress=progress if foreign else nothing)
        for k, one in zip(there, measure(name, rule.theory, run, some, targets, shape), strict=True):
            runs[k].append(one)
        if not foreign:
            progress(done + 1)
    for k, target in zip(there, targets, strict=True):
        powers[k] = tuple(_power(target.found[norm]) for norm in sorted(target.found) if norm < np.inf)
    return tuple(map(_one, names, starts, limits, runs, powers))


def _power(found: LeastPowerNorm) -> PowerLimit:
    return PowerLimit(found.norm, tuple(found.direction.tolist()), found.margin, found.residual)


def _one(
    name: str,
    start: Float64[np.ndarray, "d"],
    limit: Limit | str,
    rules: list[Measurement],
    powers: tuple[PowerLimit, ...],
) -> Comparison:
    begin = tuple(start.tolist())
    if isinstance(limit, str):
        return Comparison(name, begin, no_limit=limit)
    svm = limit.svm
    where = tuple(svm.direction.tolist())
    return Comparison(
        name, begin, tuple(svm.alpha.tolist()), limit.kind.value, where, svm.margin, "", tuple(rules), powers
    )


def merge(parts: Iterable[Comparison], rules: Sequence[str]) -> list[Comparison]:
    """One entry per problem with what all rules did on it, in the order of the rules."""
    found: dict[str, list[Comparison]] = {}
    for one in parts:
        found.setdefault(one.name, []).append(one)
    return [_merge_runs(held, rules) for held in found.values()]


def _merge_runs(parts: Sequence[Comparison], rules: Sequence[str]) -> Comparison:
    runs = sorted((run for one in parts for run in one.rules), key=lambda run: rules.index(run.rule))
    powers = {power.norm: power for one in parts for power in one.powers}
    return replace(parts[0], rules=tuple(runs), powers=tuple(powers[norm] for norm in sorted(powers)))
