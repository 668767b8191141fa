"""Benchmarks of next-token data: time to compute exact extended supports, and then the limit of training.

The extended support of a context is its set of observed next tokens, enlarged by tokens that training cannot separate
from them. Run with:

    python -m pytest benchmarks/bench_next_tokens.py
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from reference_attention.next_token import extended_supports as module
from reference_attention.next_token.extended_supports import extended_supports
from reference_attention.next_token.finite_minimum import finite_minimum
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.next_token_svm import next_token_svm
from reference_attention.next_token.subspace_split import Split

MOST, WIDE = 14, 10
"""Number of alternatives (tokens of all contexts) and of entries of the parameter at which a certificate must take at
most 5 ms."""


def drawn(rng: np.random.Generator) -> MasterProblem:
    """Draw two to five contexts with about 14 tokens in all (vectors in Z^10); one or two tokens follow a context."""
    m = int(rng.integers(2, 6))
    alternatives = MOST // m + 1
    vectors = rng.integers(-2, 3, size=(m, alternatives, WIDE)).astype(float)
    counts = np.zeros((m, alternatives), dtype=np.int64)
    counts[:, 0] = 1
    counts[rng.random(m) < 0.4, 1] = 2
    if rng.random() < 0.5:  # contradictions: context 0 ranks one token above another, context 1 ranks them in reverse
        vectors[1], vectors[0, :2] = vectors[0], vectors[0, 1::-1]
    return MasterProblem(vectors, counts)


PROBLEMS = [drawn(np.random.default_rng(seed)) for seed in range(20)]


@pytest.mark.parametrize("k", range(4))
def test_extended_supports(benchmark: BenchmarkFixture, k: int) -> None:
    """Time the computation of the extended supports of one problem."""
    benchmark(extended_supports, PROBLEMS[k])


def test_a_certificate_takes_five_milliseconds_at_most(benchmark: BenchmarkFixture) -> None:
    """Check that the median time per problem is below 5 ms, and that the linear program finds each certificate."""
    assert all(module._by_program(problem) is not None for problem in PROBLEMS)
    benchmark(lambda: [extended_supports(problem) for problem in PROBLEMS])
    assert benchmark.stats.stats.median / len(PROBLEMS) < 5e-3


@pytest.mark.parametrize("k", range(2))
def test_ends(benchmark: BenchmarkFixture, k: int) -> None:
    """Time the computation of the limit of training: the direction of the SVM's solution, and the finite minimum."""
    sets = extended_supports(PROBLEMS[k]).sets

    def solve() -> None:
        next_token_svm(PROBLEMS[k], sets)
        assert finite_minimum(Split.of(PROBLEMS[k], sets)).radius < 1e-60

    benchmark(solve)
