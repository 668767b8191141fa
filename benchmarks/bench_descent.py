"""Gradient descent against normalized gradient descent: steps and time until the direction is that of the limit.

On the paper's data of Figures 1 and 4; what a rule does not reach within the cap is said, not left out. Run with
``pytest benchmarks --benchmark-only``.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from attention.descent import Trajectory, gradient_descent, normalized_gradient_descent
from attention.flow import gradient_flow
from attention.max_margin import MaxMargin, max_margin
from attention.problem import Problem
from attention.regularization_path import regularization_path

CAP = 20_000
"""Steps of a run; longer ones gain a factor log 2 in norm per doubling."""

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""1 − cos to the limit direction."""

RULES = {
    "gd-1/L": lambda problem, start: gradient_descent(problem, start, steps=CAP),
    "gd-1": lambda problem, start: gradient_descent(problem, start, steps=CAP, log_step=0.0),
    "normalized-0.1": lambda problem, start: normalized_gradient_descent(problem, start, steps=CAP, step=0.1),
    "normalized-1": lambda problem, start: normalized_gradient_descent(problem, start, steps=CAP, step=1.0),
}


def figure(name: str) -> tuple[Problem, MaxMargin]:
    """The data of a figure and its p_mm(opt)."""
    from generators.datasets import DATASETS

    problem = DATASETS[name]().problem
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    return problem, svm


def limit_of(problem: Problem, start: np.ndarray) -> MaxMargin:
    """p_mm of the tokens that the gradient flow from ``start`` selects: a local one in Figure 1b."""
    found = gradient_flow(problem, start, norm=1e4 / problem.key_scale)
    svm = max_margin(problem.keys, (problem.keys @ found.final).argmax(axis=1))
    assert isinstance(svm, MaxMargin)
    return svm


def start_of(problem: Problem) -> np.ndarray:
    """(0, −1): on the side of Figure 1 that has to turn."""
    start = np.zeros(problem.d)
    start[1] = -1.0
    return start


def iterations_to(run: Trajectory, svm: MaxMargin) -> dict[str, int | str]:
    """The first iteration from which on 1 − cos stays at each level."""
    apart = run.one_minus_cosine(svm.direction)
    reached: dict[str, int | str] = {}
    for level in LEVELS:
        above = np.nonzero(~(apart <= level))[0]
        first = int(above[-1]) + 1 if len(above) else 0
        reached[f"{level:g}"] = (
            int(run.iterations[first])
            if first < len(apart)
            else f"not within {CAP} steps (1 - cos = {apart[-1]:.1e}, norm {run.norms[-1]:.3g})"
        )
    return reached


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["figure-1a", "figure-1b", "figure-4"])
def test_descent(benchmark: BenchmarkFixture, name: str, rule: str) -> None:
    problem, _ = figure(name)
    svm = limit_of(problem, start_of(problem))
    benchmark.group = name
    run = benchmark.pedantic(RULES[rule], args=(problem, start_of(problem)), rounds=1)
    benchmark.extra_info["iterations to 1 - cos"] = iterations_to(run, svm)
    benchmark.extra_info["seconds per step"] = benchmark.stats.stats.mean / CAP


@pytest.mark.parametrize("starts", [1, 10, 100, 1000])
def test_batched_normalized_descent(benchmark: BenchmarkFixture, starts: int) -> None:
    """100 steps from many starts at (n, T, d) = (4, 6, 10), the size of the paper's random trials."""
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(4, 6, 10)), rng.normal(size=(4, 6)))
    points = rng.normal(size=(starts, 10))
    benchmark(normalized_gradient_descent, problem, points, steps=100, step=1.0, record_every=100)
    benchmark.extra_info["seconds per step and start"] = benchmark.stats.stats.min / 100 / starts


@pytest.mark.parametrize("name", ["figure-1a", "figure-1b", "figure-4"])
def test_flow(benchmark: BenchmarkFixture, name: str) -> None:
    """To ‖p‖ = 10⁶/Θ, where time is e^{10⁶}."""
    problem, svm = figure(name)
    found = benchmark(gradient_flow, problem, start_of(problem), norm=1e6 / svm.margin)
    svm = limit_of(problem, start_of(problem))
    benchmark.extra_info["1 - cos"] = float(found.one_minus_cosine(svm.direction)[-1])
    benchmark.extra_info["log time"] = float(found.log_time[-1])
    benchmark.extra_info["stop"] = found.stop.value


@pytest.mark.parametrize("name", ["figure-1a", "figure-1b", "figure-4"])
def test_regularization_path(benchmark: BenchmarkFixture, name: str) -> None:
    """Seven radii, to RΘ = 10⁶."""
    problem, svm = figure(name)
    radii = np.geomspace(1.0, 1e6, 7) / svm.margin
    path = benchmark(regularization_path, problem, radii, max_margin=svm)
    benchmark.extra_info["1 - cos"] = path.one_minus_cosine.tolist()
    benchmark.extra_info["converged"] = path.converged.tolist()
