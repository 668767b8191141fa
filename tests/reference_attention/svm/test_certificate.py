"""The rows of ATT-SVM: floats of order one at any scale of the keys, integers that are the exact rows."""

from __future__ import annotations

import numpy as np
import pytest

from reference_attention.svm.certificate import KeyRows

KEYS = np.array([[[1.0, -1.5], [0.25, 0.5], [1.0, 1.75]], [[0.0, 1.0], [0.5, 0.5], [-1.25, 0.0]]])
ALPHA = np.array([0, 2])


@pytest.mark.parametrize("exponent", [-300, -1, 0, 1, 300])
def test_floats_do_not_depend_on_the_scale_and_integers_are_exact(exponent: int) -> None:
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
