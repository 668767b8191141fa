"""Benchmarks of ATT-SVM⋆ (least nuclear norm): our enclosure of the norm, cvxpy (Clarabel), and exact ATT-SVM.

Run with ``pytest benchmarks/bench_nuclear_max_margin.py``; results are grouped by problem size (n, T, d).
"""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.query_limits import on_the_sphere
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin

SHAPES = [(2, 3, 3), (4, 6, 10), (6, 8, 10), (4, 5, 20)]
WIDTH = 1e-12
"""Largest relative width that the enclosure of C_⋆, the least nuclear norm, may have."""


def data(shape: tuple[int, int, int]) -> tuple[OuterKeys, np.ndarray]:
    """Return the keys and the optimal tokens of a random problem of size (n, T, d)."""
    problem = on_the_sphere(0, *shape)
    assert isinstance(problem.exact_keys, OuterKeys)
    return problem.exact_keys, problem.optimal


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_enclosed(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Time the enclosure of the least nuclear norm in ATT-SVM⋆."""
    benchmark.group = f"nuclear max-margin {shape}"
    svm = benchmark(nuclear_max_margin, *data(shape))
    assert isinstance(svm, NuclearMaxMargin)
    assert svm.unique
    assert svm.bounds[1] - svm.bounds[0] <= WIDTH * svm.norm


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_frobenius(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Time ATT-SVM, with the Frobenius norm in place of the nuclear norm, solved over the rationals."""
    benchmark.group = f"nuclear max-margin {shape}"
    assert isinstance(benchmark(max_margin, *data(shape)), MaxMargin)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cvxpy(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Time one solve of ATT-SVM⋆ by cvxpy, with the problem built as a user would build it."""
    benchmark.group = f"nuclear max-margin {shape}"
    keys, alpha = data(shape)
    inputs, tokens = np.nonzero(np.arange(shape[1]) != alpha[:, None])
    rows = keys.tokens[inputs, alpha[inputs]] - keys.tokens[inputs, tokens]

    def by_cvxpy() -> float:
        W = cvxpy.Variable((shape[2], shape[2]))
        margins = cvxpy.sum(cvxpy.multiply(rows @ W, keys.queries[inputs]), axis=1)
        return float(cvxpy.Problem(cvxpy.Minimize(cvxpy.normNuc(W)), [margins >= 1]).solve(solver=cvxpy.CLARABEL))

    assert benchmark(by_cvxpy) > 0
