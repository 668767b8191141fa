"""Attention of least penalised risk, a projection onto the simplex: optimal over all supports, by hand, and at
thresholds. The scores are γ, the penalty λ; ν are the multipliers of non-negative weights.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st

from reference_attention.errors import InvalidInput
from reference_attention.optimal_attention import optimal_attention

Score = st.integers(-6, 6).map(lambda k: fmpq(k, 2))


def value(scores: list[fmpq], penalty: fmpq, s: list[fmpq]) -> fmpq:
    pairs = zip(scores, s, strict=True)
    return sum((a * b - penalty * b * b for a, b in pairs), fmpq(0))


@given(st.lists(Score, min_size=1, max_size=5), st.integers(1, 24).map(lambda k: fmpq(k, 8)))
def test_no_support_does_better(scores: list[fmpq], penalty: fmpq) -> None:
    """Compute the best weights of sum 1 on each support by Lagrange; those with non-negative entries are candidates."""
    attention = optimal_attention([scores], penalty)
    s = list(attention.weights[0])
    assert sum(s, fmpq(0)) == 1
    best = value(scores, penalty, s)
    for size in range(1, len(scores) + 1):
        for support in combinations(range(len(scores)), size):
            level = (sum((scores[t] for t in support), fmpq(0)) - 2 * penalty) / size
            tried = [(scores[t] - level) / (2 * penalty) if t in support else fmpq(0) for t in range(len(scores))]
            assert min(tried) < 0 or value(scores, penalty, tried) <= best
    for t, w in enumerate(s):
        nu = attention.multipliers[0][t]
        assert nu >= 0
        assert nu * w == 0
        assert nu == attention.levels[0] - scores[t] + 2 * penalty * w


def test_the_optimal_attention_is_that_found_by_hand() -> None:
    attention = optimal_attention([[fmpq(1), fmpq(4), fmpq(2), fmpq(3)]], fmpq(1))
    assert attention.weights == ((0, fmpq(3, 4), 0, fmpq(1, 4)),)
    assert attention.multipliers == ((fmpq(3, 2), 0, fmpq(1, 2), 0),)
    assert np.array_equal(attention.sets, [[False, True, False, True]])
    assert attention.first.tolist() == [1]


@pytest.mark.parametrize(("twice", "size"), [(1, 1), (fmpq(9, 8), 2), (3, 2), (fmpq(25, 8), 3), (6, 3), (7, 4)])
def test_at_a_threshold_of_the_penalty_no_token_is_added(twice: fmpq, size: int) -> None:
    """For γ = (4, 3, 2, 1) a token is added where 2λ exceeds 1, 3 and 6; at such a threshold the next token has ν = 0
    and weight 0.
    """
    attention = optimal_attention([[fmpq(k) for k in (4, 3, 2, 1)]], fmpq(twice) / 2)
    assert int(attention.sets.sum()) == size
    assert sum(nu == 0 for nu in attention.multipliers[0]) == size + (twice in (1, 3, 6))


def test_a_penalty_that_is_not_positive_is_refused() -> None:
    with pytest.raises(InvalidInput, match="penalty: 0 is not positive"):
        optimal_attention([[fmpq(1)]], fmpq(0))
