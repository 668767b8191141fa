"""The rows k_α − k_t of ATT-SVM: as floats of order one at any scale of the keys, and as integers, which are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.certificate import KeyRows

KEYS = np.array([[[1.0, -1.5], [0.25, 0.5], [1.0, 1.75]], [[0.0, 1.0], [0.5, 0.5], [-1.25, 0.0]]])
ALPHA = np.array([0, 2])


@pytest.mark.parametrize("exponent", [-300, -1, 0, 1, 300])
def test_rows_in_floats_do_not_depend_on_the_scale_of_the_keys_and_integer_rows_are_exact(exponent: int) -> None:
    rows, scaled = KeyRows(KEYS, ALPHA), KeyRows(np.ldexp(KEYS, exponent), ALPHA)
    assert np.array_equal(scaled.floats, rows.floats)
    assert 0 < np.abs(rows.floats).max() <= 4
    exact = np.array([[int(x) for x in row] for row in scaled.integers(range(4)).tolist()], dtype=np.float64)
    assert np.array_equal(exact, np.ldexp(scaled.floats, scaled.shift))
    others = KEYS[[0, 1], ALPHA][:, None] - KEYS
    assert np.array_equal(np.ldexp(exact, scaled.unit - exponent), others[np.arange(3) != ALPHA[:, None]])


def test_zero_keys_have_zero_rows() -> None:
    rows = KeyRows(np.zeros((1, 2, 3)), np.array([0]))
    assert not rows.floats.any()
    assert not any(int(x) for x in rows.integers([0]).entries())
    assert rows.shift == -rows.unit


def test_rows_of_keys_given_by_factors_are_the_exact_differences_rounded_once() -> None:
    rng = np.random.default_rng(0)
    tokens, queries = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 4))
    # The tokens are nearly equal: the difference of two rounded products would keep few digits.
    tokens[:, 1] = tokens[:, 0] * (1 + 2.0**-40)
    rows = KeyRows(OuterKeys(tokens, queries), np.zeros(2, dtype=np.int64))
    for j in range(4):
        i, t = rows.pair(j)
        apart = [Fraction(a) - Fraction(b) for a, b in zip(tokens[i, 0].tolist(), tokens[i, t].tolist(), strict=True)]
        exact = [a * Fraction(z) for a in apart for z in queries[i].tolist()]
        assert np.ldexp(rows.floats[j], rows.shift + rows.unit).tolist() == [float(x) for x in exact]
        integers = [Fraction(int(x)) * Fraction(2) ** rows.unit for x in rows.integers([j]).entries()]
        assert integers == exact


def test_rows_of_zero_keys_are_integers_in_any_unit() -> None:
    """The other keys are multiples of 4; zeros alone determine no power of two as their unit."""
    keys = np.array([[[0.0, 0.0], [0.0, 0.0]], [[4.0, 12.0], [8.0, 0.0]]])
    rows = KeyRows(keys, np.zeros(2, dtype=np.int64))
    assert rows.integers([0]).entries() == [0, 0]
    assert rows.integers([1]).entries() == [-1, 3]
    assert rows.integers([0, 1]).entries() == [0, 0, -1, 3]
    assert rows.unit == 2
