"""Benchmarks of the update rules of ``theorems bench``, in seconds per run; the command itself counts iterations.

The benchmarks use the paper's data of Figures 1 and 4, and the same rules, starts, limits and levels of 1 − cos (of the
angle between p and its limit) as ``theorems bench``. A level that a rule does not reach within ``CAP`` steps is printed
as "-". Run with ``pytest benchmarks --benchmark-only``.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from generators.datasets import dataset_named
from reference_attention.paths.regularization_path import regularization_path
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.descent import normalized_gradient_descent
from reference_attention.training.flow import gradient_flow
from theorems.benchmark.bench_units import start_of
from theorems.benchmark.measurements import LEVELS, Limit, Limits, limit_of, measure
from theorems.benchmark.rules import DEFAULT, rule_named
from theorems.command.benchmark import DATA

CAP = 20_000
"""Number of steps of a run; twice as many steps of gradient descent would increase ‖p‖ only by about ‖p_mm‖ log 2."""


def figure(name: str) -> tuple[Problem, np.ndarray, Limit]:
    """Return a figure's data, a start from which p must change direction, and the flow's limit from this start."""
    case = dataset_named(name)
    start = start_of(name, case)
    limit = limit_of(case.problem, start)
    assert isinstance(limit, Limit)
    return case.problem, start, limit


@pytest.mark.parametrize("rule", DEFAULT)
@pytest.mark.parametrize("name", DATA)
def test_descent(benchmark: BenchmarkFixture, name: str, rule: str) -> None:
    """Time an update rule on a figure's data, and count its iterations to each level of 1 − cos.

    The angle is that between p and its limit.
    """
    problem, start, limit = figure(name)
    benchmark.group = name
    chosen = rule_named(rule)
    run = benchmark.pedantic(chosen.run, args=([problem], start[None], CAP), rounds=1)
    counts = measure(rule, chosen.theory, run, [problem], [Limits(problem, limit)])[0].iterations
    reached = {f"{level:g}": count for level, count in zip(LEVELS, counts, strict=True)}
    benchmark.extra_info["iterations to 1 - cos"] = reached
    benchmark.extra_info["seconds per step"] = benchmark.stats.stats.mean / CAP


@pytest.mark.parametrize("starts", [1, 10, 100, 1000])
def test_batched_normalized_descent(benchmark: BenchmarkFixture, starts: int) -> None:
    """Time 100 normalized steps from many starts at (n, T, d) = (4, 6, 10), the size of the paper's random trials."""
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(4, 6, 10)), rng.normal(size=(4, 6)))
    points = rng.normal(size=(starts, 10))
    benchmark(normalized_gradient_descent, problem, points, steps=100, step=1.0, record_every=100)
    benchmark.extra_info["seconds per step and start"] = benchmark.stats.stats.min / 100 / starts


@pytest.mark.parametrize("name", DATA)
def test_flow(benchmark: BenchmarkFixture, name: str) -> None:
    """Time the computation of a gradient flow up to ‖p‖ = 10⁶/Θ (Θ: margin), which it reaches at t = e^{10⁶}."""
    problem, start, limit = figure(name)
    flow = benchmark(gradient_flow, problem, start, norm=1e6 / limit.svm.margin)
    svm = limit.svm
    benchmark.extra_info["1 - cos"] = float(flow.one_minus_cosine(svm.direction)[-1])
    benchmark.extra_info["log time"] = float(flow.log_time[-1])
    benchmark.extra_info["stop"] = flow.stop.value


@pytest.mark.parametrize("name", DATA)
def test_regularization_path(benchmark: BenchmarkFixture, name: str) -> None:
    """Time the computation of a regularization path at seven radii R, up to RΘ = 10⁶, where Θ is the margin."""
    problem, _, _ = figure(name)
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    radii = np.geomspace(1.0, 1e6, 7) / svm.margin
    path = benchmark(regularization_path, problem, radii, max_margin=svm)
    benchmark.extra_info["1 - cos"] = path.one_minus_cosine.tolist()
    benchmark.extra_info["converged"] = path.converged.tolist()
