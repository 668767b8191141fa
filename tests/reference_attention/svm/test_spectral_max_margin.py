"""The largest margin in the spectral and in the nuclear norm: by hand, and against its dual."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from reference_attention.errors import InvalidInput
from reference_attention.exact import to_floats
from reference_attention.norms import Schatten, conjugate, length, name_of
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm import barriers
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.norm_max_margin import norm_max_margin

FIRST = np.zeros(2, dtype=np.int64)
SPECTRAL, NUCLEAR = Schatten(math.inf, (2, 2)), Schatten(1.0, (2, 2))
ORTHOGONAL = OuterKeys(np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]), np.eye(2))
"""Keys whose rows are e_1 e_1ᵀ and e_2 e_2ᵀ."""


def test_the_solution_for_two_orthogonal_rows_is_that_found_by_hand() -> None:
    """The solution W = I has margins of 1 and the norms ‖I‖_op = 1 and ‖I‖_⋆ = 2; duals λ = (½, ½) prove it optimal in
    both.
    """
    spectral, nuclear = (norm_max_margin(ORTHOGONAL, FIRST, norm) for norm in (SPECTRAL, NUCLEAR))
    assert spectral is not None
    assert spectral.margin == pytest.approx(1, rel=1e-8)
    assert spectral.p == pytest.approx([1, 0, 0, 1], abs=1e-4)
    assert nuclear is not None
    assert nuclear.margin == pytest.approx(0.5, rel=1e-8)


@pytest.mark.parametrize("power", [1.0, math.inf])
def test_primal_and_dual_bounds_meet_on_random_data(power: float) -> None:
    rng, met = np.random.default_rng(0), 0
    for _ in range(12):
        n, T, d, e = (int(x) for x in rng.integers(2, 5, 4))
        keys = OuterKeys(rng.normal(size=(n, T, d)), rng.normal(size=(n, e)))
        solution = norm_max_margin(keys, np.zeros(n, dtype=np.int64), Schatten(power, (d, e)))
        if solution is not None:
            met += 1
            assert solution.primal_residual == 0
            assert abs(solution.duality_gap) <= 1e-7
    assert met >= 5


def test_inseparable_data_have_no_spectral_solution() -> None:
    keys = OuterKeys(np.array([[[0.0], [1.0]], [[0.0], [-1.0]]]), np.ones((2, 1)))
    for power in (1.0, math.inf):
        assert norm_max_margin(keys, FIRST, Schatten(power, (1, 1))) is None


def test_lengths_conjugates_and_names_of_matrix_norms_are_right() -> None:
    x = np.array([3.0, 0.0, 0.0, 4.0])
    assert (length(x, SPECTRAL), length(x, NUCLEAR), length(x, 2.0)) == (4, 7, 5)
    assert conjugate(SPECTRAL) == NUCLEAR
    assert (name_of(SPECTRAL), name_of(NUCLEAR), name_of(1.5), name_of(math.inf)) == (
        "spectral",
        "nuclear",
        "ℓ1.5",
        "ℓ∞",
    )


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="singular values"):
        Schatten(3.0, (2, 2))
    with pytest.raises(InvalidInput, match="shape"):
        norm_max_margin(ORTHOGONAL, FIRST, Schatten(math.inf, (2, 3)))
    with pytest.raises(InvalidInput, match="factors"):
        norm_max_margin(ORTHOGONAL.floats, FIRST, NUCLEAR)


@pytest.mark.parametrize("power", [1.0, math.inf])
@pytest.mark.parametrize("tie", [1e-9, 1e-13])
def test_the_margin_is_found_for_data_that_nearly_coincide_or_cancel(power: float, tie: float) -> None:
    """Queries and tokens nearly coincide and rows nearly cancel, so that floats mostly fail."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        tokens, queries = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 3))
        tokens[0, 1] = tokens[0, 0] - tie * np.array([1.0, 0.0])
        tokens[1, 2] = tokens[1, 1] + tie
        queries[1] = queries[0] * (1 + tie)
        keys = OuterKeys(tokens, queries)
        feasible = isinstance(max_margin(keys, FIRST), MaxMargin)
        solution = norm_max_margin(keys, FIRST, Schatten(power, (2, 3)))
        assert (solution is not None) == feasible
        if solution is not None:
            assert abs(solution.duality_gap) <= 1e-7


@pytest.mark.parametrize("solve", [barriers.spectral_max_margin, barriers.nuclear_max_margin])
def test_barrier_methods_agree_with_the_float_solution(solve: Any) -> None:
    """Solve for two orthogonal rows in many digits; matrices above the size limit are refused."""
    rows = [[fmpq(1), fmpq(0), fmpq(0), fmpq(0)], [fmpq(0), fmpq(0), fmpq(0), fmpq(1)]]
    duals = [[fmpq(1), fmpq(1)]] if solve is barriers.nuclear_max_margin else []
    solved = solve(rows, (2, 2), [fmpq(1), fmpq(0), fmpq(0), fmpq(1)], *duals)
    W, multipliers = (to_floats(x) for x in solved)
    assert W / W[0] == pytest.approx([1, 0, 0, 1], abs=1e-6)
    assert multipliers[1] == pytest.approx(multipliers[0], rel=1e-9)
    many = [fmpq(1)] * (barriers.MOST + 1)
    assert solve([many], (1, len(many)), many, *([[fmpq(1)]] if duals else [])) is None
