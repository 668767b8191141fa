"""Median and quartiles of numbers of iterations over the generated problems.

Results are for levels of 1 − cos; a level that a run does not reach within the given number of iterations (the *cap*)
counts as infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from theorems.benchmark.comparison import Comparison
from theorems.benchmark.measurements import LEVELS, Measurement
from theorems.benchmark.optimisers.optimiser import Theory

QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Spread:
    """The numbers of iterations that one rule needs to one level of 1 − cos, over the generated problems with a limit.

    Attributes:
        quartiles: lower quartile, median and upper quartile of the iterations; ``None`` where the quartile is beyond
            the cap.
        not_within: the number of problems on which the level is not reached within the cap.
    """

    quartiles: tuple[int | None, int | None, int | None]
    not_within: int


@dataclass(frozen=True)
class Summary:
    """The results of one rule on all generated problems that have a limit direction.

    Attributes:
        rule: the name of the rule.
        theory: the theorems about the rule.
        levels: the numbers of iterations to each level of 1 − cos.
        other_tokens: the number of problems on which the run settles on tokens that the gradient flow does not select.
        not_yet: the number of problems on which tokens that the gradient flow does not select have the largest weights
            at the cap, but the run has not settled.
        norm: the median of ‖p‖ at the cap.
        exponents: the quartiles of the exponents of the fitted power laws; NaN if none was fitted.
    """

    rule: str
    theory: Theory
    levels: tuple[Spread, ...]
    other_tokens: int
    norm: float
    exponents: tuple[float, float, float]
    not_yet: int = 0


def summaries(compared: Sequence[Comparison]) -> list[Summary]:
    """Summarise each rule over the problems that have a limit."""
    by_rule: dict[str, list[Measurement]] = {}
    for comparison in compared:
        for run in comparison.rules:
            by_rule.setdefault(run.rule, []).append(run)
    return [_summary(rule, runs) for rule, runs in by_rule.items()]


def _summary(rule: str, runs: Sequence[Measurement]) -> Summary:
    levels = [spread([run.iterations[k] for run in runs]) for k in range(len(LEVELS))]
    norm = float(np.median([run.norm for run in runs]))
    others = sum(not run.selects_limit and run.settled for run in runs)
    not_yet = sum(not run.selects_limit and not run.settled for run in runs)
    rates = [run.rate.exponent for run in runs if run.rate is not None] or [math.nan]
    lower, median, upper = (float(x) for x in np.quantile(rates, QUARTILES, method="inverted_cdf"))
    return Summary(rule, runs[0].theory, tuple(levels), others, norm, (lower, median, upper), not_yet)


def spread(iterations: Sequence[int | None]) -> Spread:
    """Return quartiles as order statistics, without interpolation; ``None`` is larger than every number."""
    values = np.sort([math.inf if count is None else float(count) for count in iterations])
    lower, median, upper = (float(x) for x in np.quantile(values, QUARTILES, method="inverted_cdf"))
    return Spread((_count(lower), _count(median), _count(upper)), int(np.isinf(values).sum()))


def _count(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None
