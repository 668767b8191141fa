"""Benchmarks of few inputs in a large space: d = 11,000, as in papers on benign overfitting, against d = 200.

Searches and integrations happen in the span of the key differences, so that their time does not depend on d. The time
of exact products of key differences, and of claims at points of the whole space, is proportional to d. At d = 11,000 a
command, including its start, may take at most three times as long as at d = 200.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from generators.case import Case
from generators.margin_assumptions import checked_margins
from reference_attention.paths.regularization_path import regularization_path
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.flow import gradient_flow
from theorems.core.check import check
from theorems.core.implementation import REFERENCE
from theorems.explanations.explanation import explanation_of
from theorems.run.registry.lookup import statement_named

SMALL, LARGE = 200, 11_000
N, TOKENS, ROUNDS = 20, 2, 3


def problem_in(d: int) -> Problem:
    """Return a problem with n = 20, T = 2 and Gaussian keys of norm about 1 in d dimensions."""
    rng = np.random.default_rng(0)
    return Problem(rng.standard_normal((N, TOKENS, d)) / np.sqrt(d), rng.standard_normal((N, TOKENS)))


def follow_path(problem: Problem) -> None:
    """Compute the regularization path up to the radius R = 100/Θ, where Θ is the margin."""
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    regularization_path(problem, [10 * svm.norm, 100 * svm.norm], max_margin=svm)


WORK: dict[str, Callable[[Problem], object]] = {
    "max_margin": lambda problem: max_margin(problem.keys, problem.optimal),
    "checked_margins": lambda problem: checked_margins(problem.keys, problem.optimal),
    "gradient_flow": lambda problem: gradient_flow(problem, np.zeros(problem.d), norm=1e5),
    "regularization_path": follow_path,
    "explain": lambda problem: explanation_of(Case(problem), "thin"),
    "theorem-1": lambda problem: check(statement_named("theorem-1"), Case(problem), REFERENCE),
    "theorem-2": lambda problem: check(statement_named("theorem-2"), Case(problem), REFERENCE),
}


@pytest.mark.parametrize("name", WORK)
def test_thin(benchmark: BenchmarkFixture, name: str) -> None:
    """Compare the time of a computation at d = 11,000 with the time of the same computation at d = 200."""
    work, small, large = WORK[name], problem_in(SMALL), problem_in(LARGE)
    work(small)
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work(small)
        seconds.append(time.perf_counter() - begin)
    benchmark.pedantic(work, args=(large,), rounds=ROUNDS)
    ratio = benchmark.stats.stats.min / min(seconds)
    benchmark.extra_info["ratio"] = f"{name}: d = {LARGE} takes {ratio:.2f} times d = {SMALL}"
