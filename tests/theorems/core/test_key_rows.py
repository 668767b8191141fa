"""Differences of keys k_iα − k_it: their values and bounds of rounding, for one choice of tokens α or many."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from theorems.bounded import Bounded, in_floats, spacing, value_of
from theorems.core.key_rows import LARGE, key_rows


@pytest.mark.parametrize("d", [2, LARGE])
@pytest.mark.parametrize("token", [[0, 2], [[0, 2], [0, 2]], [[0, 2], [1, 2], [0, 2]]])
def test_key_differences_carry_bounds_of_their_rounding(d: int, token: list[object]) -> None:
    rng = np.random.default_rng(d)
    keys = rng.standard_normal((2, 3, d)) * 2.0 ** rng.integers(-30, 30, (2, 3, d))
    problem, chosen = Problem(keys, np.zeros((2, 3)), "logistic"), np.array(token)
    result = key_rows(problem, chosen)
    assert result.shape == (*chosen.shape, 3, d)
    reference = keys[np.arange(2), chosen][..., None, :]
    assert (value_of(result) == reference - keys).all()
    first, other, value, error = np.broadcast_arrays(reference, keys, value_of(result), result.error)
    for a, b, x, e in zip(first.flat, other.flat, value.flat, error.flat, strict=True):
        assert abs(Fraction(a) - Fraction(b) - Fraction(x)) <= Fraction(e)
    assert (result.error <= 2.0**-52 * np.abs(value_of(result))).all()


@pytest.mark.parametrize("d", [2, LARGE])
def test_key_differences_use_the_current_arithmetic(d: int) -> None:
    """Differences of keys are plain floats within ``in_floats``, and otherwise carry the rounding of the current
    spacing, whatever was computed before.
    """
    keys = np.random.default_rng(0).standard_normal((2, 3, d))
    problem, chosen = Problem(keys, np.zeros((2, 3)), "logistic"), np.array([0, 2])
    usual = key_rows(problem, chosen)
    with in_floats():
        plain = key_rows(problem, chosen)
    with spacing(2.0**-23):
        coarse = key_rows(problem, chosen)
    again = key_rows(problem, chosen)
    assert isinstance(usual, Bounded)
    assert type(plain) is np.ndarray
    assert (plain == usual.value).all()
    assert (again.error == usual.error).all()
    assert coarse.error.max() > 1e6 * usual.error.max() > 0


def test_error_bounds_contain_differences_of_exact_and_of_rounded_products() -> None:
    """Keys are products of factors. Exact decisions use the exact products, but an implementation gets rounded ones."""
    X = np.array([[[0.9, 0.3], [0.9009, 0.3], [-0.1, 1 / 3]]])
    keys = OuterKeys(X, np.array([[0.7, 0.1]]))
    problem = Problem(keys, np.zeros((1, 3)), "logistic")
    assert problem.factors is keys
    result = key_rows(problem, np.array([0]))[0]
    chosen = [Fraction(a) * Fraction(b) for a in X[0, 0].tolist() for b in keys.queries[0].tolist()]
    beyond_its_own = 0
    for t in range(3):
        products = [Fraction(a) * Fraction(b) for a in X[0, t].tolist() for b in keys.queries[0].tolist()]
        for j, (value, error) in enumerate(zip(result.value[t].tolist(), result.error[t].tolist(), strict=True)):
            of_floats = Fraction(problem.keys[0, 0, j]) - Fraction(problem.keys[0, t, j])
            assert abs(chosen[j] - products[j] - Fraction(value)) <= Fraction(error)
            assert abs(of_floats - Fraction(value)) <= Fraction(error)
            beyond_its_own += abs(of_floats - Fraction(value)) > Fraction(2.0**-51 * abs(value))
    assert beyond_its_own > 0
    # Equal entries have equal rounding errors, so their difference is exactly 0.
    assert (result.error[0] == 0).all()
    assert (result.error[1, 2:] == 0).all()
