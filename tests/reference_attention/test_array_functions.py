"""Functions of arrays: the choice of the piece of a piecewise formula, and the result where the choice is uncertain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.array_functions import by_sign, exp, log_abs, namespace, pieces
from theorems.bounded import Bounded, exact

BELOW, ABOVE = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])


def test_at_the_bound_between_two_pieces_the_upper_one_is_taken() -> None:
    x = np.array([0.5, 1.0, 1.5])
    assert pieces(np, x, 1.0, BELOW, ABOVE).tolist() == [1.0, 5.0, 6.0]
    result = pieces(np, exact(x), 1.0, exact(BELOW), exact(ABOVE))
    assert (result.value.tolist(), result.error.tolist()) == ([1.0, 5.0, 6.0], [0.0, 0.0, 0.0])


def test_near_the_bound_the_result_contains_both_pieces() -> None:
    x = Bounded(np.array([1.0, 0.5, 1.5]), np.full(3, 0.1))
    result = pieces(np, x, 1.0, exact(BELOW), exact(ABOVE))
    assert result.value[0] - result.error[0] <= 1.0
    assert result.value[0] + result.error[0] >= 4.0
    assert (result.value[1:].tolist(), result.error[1:].tolist()) == ([2.0, 6.0], [0.0, 0.0])


def test_by_sign_chooses_the_piece_and_gives_minus_infinity_at_zero() -> None:
    sign = np.array([1.0, -1.0, 0.0])
    expected = [1.0, 5.0, -math.inf]
    assert by_sign(np, sign, BELOW, ABOVE).tolist() == expected
    result = by_sign(np, np.sign(exact(sign)), exact(BELOW), exact(ABOVE))
    assert (result.value.tolist(), result.error.tolist()) == (expected, [0.0, 0.0, 0.0])
    unsure = Bounded(np.array([0.5, -0.5, 0.0]), np.array([0.5, 0.5, 0.25]))
    assert (by_sign(np, unsure, exact(BELOW), exact(ABOVE)).error == math.inf).all()


def test_exp_of_plain_arrays_is_finite_and_of_bounded_ones_contains_the_true_value() -> None:
    assert exp(np, np.array([1.0, 800.0])) == pytest.approx(np.exp([1.0, 700.0]), rel=1e-15)
    assert exp(np, exact(np.array([800.0]))).error[0] == math.inf


def test_log_abs_of_zero_does_not_warn() -> None:
    with np.errstate(all="raise"):
        assert log_abs(np.array([0.0, -2.0, 1.0])) == pytest.approx([-math.inf, math.log(2), 0.0])


def test_the_namespace_of_a_numpy_array_is_numpy() -> None:
    assert namespace(np.ones(2)) is np
