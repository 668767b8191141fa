"""Time of one iteration of each rule, run in turns on the same machine, in seconds and against the first rule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem
from theorems.benchmark.rules import Rule, rule_named

ROUNDS = 7
"""The number of turns; the fastest of each rule counts, because other work on the machine only ever adds time."""
STEPS = 300
"""The number of iterations in a turn."""


@dataclass(frozen=True)
class Ratio:
    """The time of one iteration of ``rule`` on some data as a multiple of that of one iteration of ``beside``.

    Attributes:
        data, rule, beside: names.
        ratio: the multiple.
        seconds: of one iteration of ``rule`` on this machine.
    """

    data: str
    rule: str
    beside: str
    ratio: float
    seconds: float


def ratios(data: str, problem: Problem, start: Float64[np.ndarray, "d"], names: Sequence[str]) -> list[Ratio]:
    """Measure the ratio of every rule to the first one, by the fastest of :data:`ROUNDS` turns."""
    rules = [rule_named(name) for name in names]
    _seconds(rules[0], problem, start)  # a first run, not counted, to warm up
    best = [float("inf")] * len(rules)
    for _ in range(ROUNDS):
        for k, rule in enumerate(rules):
            best[k] = min(best[k], _seconds(rule, problem, start))
    return [
        Ratio(data, name, names[0], seconds / best[0], seconds / STEPS)
        for name, seconds in zip(names, best, strict=True)
    ]


def _seconds(rule: Rule, problem: Problem, start: Float64[np.ndarray, "d"]) -> float:
    began = time.perf_counter()
    rule.run([problem], start[None], STEPS, record_every=STEPS)
    return time.perf_counter() - began
