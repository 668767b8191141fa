"""Benchmarks of ATT-SVM: our solver, certified over the rationals, and an uncertified solve by cvxpy (Clarabel).

Run with ``pytest benchmarks/bench_max_margin.py``; results are grouped by problem size (n, T, d).
"""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from reference_attention.svm.max_margin import MaxMargin, max_margin

SHAPES = [(3, 7, 2), (4, 6, 10), (10, 10, 30), (20, 20, 50)]


def feasible(n: int, tokens: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian keys with the chosen tokens pushed along a common direction."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(n, tokens, d))
    direction = rng.normal(size=d)
    alpha = np.argmax(keys @ direction, axis=1).astype(np.int64)
    keys[np.arange(n), alpha] += direction / np.linalg.norm(direction)
    return keys, alpha


def by_cvxpy(keys: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Build ATT-SVM for keys and chosen tokens as a user of cvxpy would, and return cvxpy's solution p."""
    n, tokens, d = keys.shape
    rows = (keys[np.arange(n), alpha][:, None] - keys)[np.arange(tokens) != alpha[:, None]]
    p = cvxpy.Variable(d)
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(p)), [rows @ p >= 1]).solve(solver=cvxpy.CLARABEL)
    assert p.value is not None
    return p.value


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_certified(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Time the certified ATT-SVM solver."""
    benchmark.group = f"max-margin {shape}"
    keys, alpha = feasible(*shape)
    assert isinstance(benchmark(max_margin, keys, alpha), MaxMargin)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_certified_with_complementarity(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Time the certified solver on data with every token twice, so that rows of SVM-neighbours are dependent."""
    benchmark.group = f"max-margin {shape}"
    keys, alpha = feasible(*shape)
    n, tokens, d = shape
    others = keys[np.arange(tokens) != alpha[:, None]].reshape(n, tokens - 1, d)
    doubled = np.concatenate([keys, others], axis=1)

    def solve() -> bool:
        solution = max_margin(doubled, alpha)
        assert isinstance(solution, MaxMargin)
        return solution.strictly_complementary

    assert benchmark(solve)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cvxpy(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Time one solve of ATT-SVM by cvxpy."""
    benchmark.group = f"max-margin {shape}"
    benchmark(by_cvxpy, *feasible(*shape))
