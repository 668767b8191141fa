"""The comparison of rules on problems: limit directions, runs of the rules, and measurements of each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from reference_attention.svm.least_power_norm import LeastPowerNorm
from theorems.benchmark.measurements import Limit, Limits, Measurement, limit_of, measure
from theorems.benchmark.optimisers.run import nothing
from theorems.benchmark.rules import rule_named
from theorems.core.implementation import Implementation

Progress = Callable[[int], None]


@dataclass(frozen=True)
class PowerLimit:
    """The solution of ATT-SVM that minimises ‖p‖_q, q ≠ 2, for the tokens that the limit direction selects.

    Attributes:
        norm: the power q of the norm ‖·‖_q.
        direction: p/‖p‖, (d,).
        margin: 1/‖p‖_q.
        residual: the residual of the KKT conditions at p, 0 for an exact solution.
    """

    norm: float
    direction: tuple[float, ...]
    margin: float
    residual: float


@dataclass(frozen=True)
class Comparison:
    """One problem with the measurements of all rules on this problem.

    Attributes:
        name: the name of the data.
        start: p(0), (d,).
        alpha: the tokens that the gradient flow from p(0) selects in the limit, one per input; empty without a limit.
        kind: GMM (globally max-margin) if the tokens alpha are the optimal ones, otherwise LMM (locally max-margin).
        limit: the limit direction, which is p̄_mm of the tokens alpha, (d,).
        margin: the margin of p̄_mm, Θ = 1/‖p_mm‖.
        no_limit: the reason why there is no limit with which to compare the rules, so that no rule was run; empty if
            there is a limit.
        rules: the measurement of each rule.
        powers: the limits in other norms with which mirror descent was compared.
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
    """Run all rules on problems of one shape and loss, with one start for each problem, and measure the runs.

    Args:
        problems: the problems.
        starts: p(0) for each problem.
        names: a name for each problem.
        rules: the names of the rules.
        steps: the number of iterations.
        under_test: the implementation that computes gradients and limits.
        progress: called with the number of rules done; for a user's rule (``foreign``) with the number of iterations.
        shape: the shape of the trained parameter, (d,) or (d, e).
        keys: the factors x and z of the keys x zᵀ, if W is trained.
        foreign: whether the rules are in a user's file.

    Raises:
        NoLimit: the solver found no solution of ATT-SVM in another norm.
        NotAPoint: a step of a rule returned no array of numbers of the shape of p.
    """
    limits: list[Limit | str] = []
    for problem, start in zip(problems, starts, strict=True):
        limits.append(limit_of(problem, start, under_test))
        progress(0)  # computing the limit does not count as time of a user's rule
    with_limit = [k for k, limit in enumerate(limits) if isinstance(limit, Limit)]
    some = [problems[k] for k in with_limit]
    targets = [Limits(problems[k], limit, keys) for k, limit in enumerate(limits) if isinstance(limit, Limit)]
    runs: list[list[Measurement]] = [[] for _ in problems]
    powers: list[tuple[PowerLimit, ...]] = [() for _ in problems]
    for done, name in enumerate(rules if with_limit else ()):
        rule = rule_named(name)
        at = np.stack([starts[k] for k in with_limit])
        run = rule.run(some, at, steps, under_test, shape=shape, progress=progress if foreign else nothing)
        for k, measurement in zip(with_limit, measure(name, rule.theory, run, some, targets, shape), strict=True):
            runs[k].append(measurement)
        if not foreign:
            progress(done + 1)
    for k, target in zip(with_limit, targets, strict=True):
        powers[k] = tuple(_power(target.found[norm]) for norm in sorted(target.found) if norm < np.inf)
    return tuple(map(_comparison, names, starts, limits, runs, powers))


def _power(solution: LeastPowerNorm) -> PowerLimit:
    return PowerLimit(solution.norm, tuple(solution.direction.tolist()), solution.margin, solution.residual)


def _comparison(
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
    """Merge the comparisons of each problem, with some rules each, into one with all, in the order of ``rules``."""
    by_name: dict[str, list[Comparison]] = {}
    for comparison in parts:
        by_name.setdefault(comparison.name, []).append(comparison)
    return [_merge_runs(group, rules) for group in by_name.values()]


def _merge_runs(parts: Sequence[Comparison], rules: Sequence[str]) -> Comparison:
    runs = sorted((run for comparison in parts for run in comparison.rules), key=lambda run: rules.index(run.rule))
    powers = {power.norm: power for comparison in parts for power in comparison.powers}
    return replace(parts[0], rules=tuple(runs), powers=tuple(powers[norm] for norm in sorted(powers)))
