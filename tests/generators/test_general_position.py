"""General position: keys by hand, near misses, and agreement with the literal definition.

A row (i, t) of a choice α is the key of the chosen token α_i minus that of token t; a matrix is a set of rows.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from generators.case import Case
from generators.general_position import MOST_MATRICES, general_position, matrices, selections, sizes
from generators.keys import nudge_to_general_position
from reference_attention.exact import rational_matrix
from reference_attention.problem import Problem


def holds_for(keys: Any) -> bool | None:
    keys = np.array(keys, dtype=np.float64)
    return general_position(Case(Problem(keys, np.zeros(keys.shape[:2])))).holds


def literally(keys: np.ndarray[Any, Any]) -> bool:
    """Decide the definition literally: for every choice α and every set of rows, the rank or range over the
    rationals.
    """
    n, tokens, d = keys.shape
    for alpha in product(range(tokens), repeat=n):
        rows = [keys[i, a] - keys[i, t] for i, a in enumerate(alpha) for t in range(tokens) if t != a]
        for m in range(1, len(rows) + 1):
            for chosen in combinations(rows, m):
                matrix = np.array(chosen)
                rank = rational_matrix(matrix).rank()
                with_ones = rational_matrix(np.column_stack([matrix, np.ones(m)])).rank()
                if (rank < m) if m <= d else (with_ones == rank):
                    return False
    return True


def test_keys_with_three_tokens_on_a_line_are_not_in_general_position() -> None:
    assert holds_for([[[0, 0], [1, 1], [2, 2]]]) is False
    assert holds_for([[[0, 0], [1, 1], [2, 2 + 2.0**-51]]])
    assert holds_for([[[0, 0], [1, 1], [2, 3]]])


def test_keys_with_a_repeated_token_or_difference_are_not_in_general_position() -> None:
    assert holds_for([[[0, 0], [0, 0]]]) is False
    assert holds_for([[[0], [1]], [[5], [6]]]) is False
    assert holds_for([[[0], [1]], [[5], [7]]])


def test_keys_of_which_a_matrix_has_ones_in_its_range_are_not_in_general_position() -> None:
    # In one dimension a prompt has the product 1 with two rows only if the rows are equal: 1 and 1, but not 1 and 2.
    assert holds_for([[[1], [0]], [[2], [0]]])
    assert holds_for([[[1], [0]], [[1], [0]]]) is False
    # In two dimensions (1, 0), (0, 1), (1/2, 1/2) are pairwise independent, but all have the product 1 with (1, 1).
    keys = [[[1, 0], [0, 0]], [[0, 1], [0, 0]], [[0.5, 0.5], [0, 0]]]
    assert holds_for(keys) is False
    keys[2][0][0] += 2.0**-50
    assert holds_for(keys)


def test_beyond_the_limit_of_matrices_nothing_is_established() -> None:
    assert matrices(4, 6, 5) > MOST_MATRICES
    assert holds_for(np.arange(120.0).reshape(4, 6, 5)) is None


@pytest.mark.parametrize("shape", [(1, 2, 1), (3, 2, 2), (2, 3, 2), (3, 4, 1), (2, 4, 3), (4, 2, 6)])
def test_the_number_of_matrices_is_that_of_their_enumeration(shape: tuple[int, int, int]) -> None:
    n, tokens, _ = shape
    assert matrices(*shape) == sum(1 for m in sizes(*shape) for _ in selections(n, tokens, m)) <= MOST_MATRICES


@pytest.mark.parametrize("shape", [(30, 2, 2), (200, 2, 1), (16, 256, 256), (100, 3, 8)])
def test_matrices_of_large_problems_are_counted_without_enumeration(shape: tuple[int, int, int]) -> None:
    """An enumeration of the T^n choices of tokens would take for ever at n = 30."""
    generator = np.random.default_rng(0)
    assert holds_for(generator.normal(size=shape)) is (True if matrices(*shape) <= MOST_MATRICES else None)


@settings(max_examples=60)
@given(
    hnp.arrays(
        np.int64, st.tuples(*(st.integers(1, 2), st.integers(2, 3), st.integers(1, 3))), elements=st.integers(-4, 4)
    )
)
def test_the_enumeration_agrees_with_the_definition(keys: np.ndarray[Any, Any]) -> None:
    keys = keys.astype(np.float64)
    assert holds_for(keys) is literally(keys)
    nudged = nudge_to_general_position(keys)
    assert literally(nudged)
    assert np.abs(nudged - keys).max() <= 1 / 16


@pytest.mark.parametrize("scale", [2.0**-300, 2.0**300])
def test_the_decision_on_general_position_does_not_depend_on_the_unit_of_the_keys(scale: float) -> None:
    keys = np.array([[[0, 0], [1, 1], [2, 3.0]]])
    assert holds_for(keys * scale)
    assert holds_for(np.array([[[0, 0], [1, 1], [2, 2.0]]]) * scale) is False
