"""Differences of keys: the same for one point and for many, however large the problem is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference_attention.problem import Problem
from theorems.core.key_rows import LARGE, key_rows
from theorems.rounding.bounded import value_of


@pytest.mark.parametrize("d", [2, LARGE])
@pytest.mark.parametrize("token", [[0, 2], [[0, 2], [0, 2]], [[0, 2], [1, 2], [0, 2]]])
def test_rows_are_differences_with_their_rounding(d: int, token: list[object]) -> None:
    rng = np.random.default_rng(d)
    keys = rng.standard_normal((2, 3, d)) * 2.0 ** rng.integers(-30, 30, (2, 3, d))
    problem, chosen = Problem(keys, np.zeros((2, 3)), "logistic"), np.array(token)
    found = key_rows(problem, chosen)
    assert found.shape == (*chosen.shape, 3, d)
    reference = keys[np.arange(2), chosen][..., None, :]
    assert (value_of(found) == reference - keys).all()
    first, other, value, error = np.broadcast_arrays(reference, keys, value_of(found), found.error)
    for a, b, x, e in zip(first.flat, other.flat, value.flat, error.flat, strict=True):
        assert abs(Fraction(a) - Fraction(b) - Fraction(x)) <= Fraction(e)
    assert (found.error <= 2.0**-52 * np.abs(value_of(found))).all()
