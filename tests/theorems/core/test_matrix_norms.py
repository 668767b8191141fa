"""Rational upper bounds of matrix norms: above the norm and close to it, also where singular values are 0 or tiny."""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq

from reference_attention.exact import rational_matrix, to_float
from theorems.core.matrix_norms import is_below, nuclear_norm_above, spectral_norm_above

RNG = np.random.default_rng(0)
MATRICES = {
    "square": RNG.normal(size=(3, 3)),
    "wide": RNG.integers(-9, 9, (2, 4)).astype(float),
    "tall": RNG.normal(size=(5, 2)),
    "of rank one": np.outer([1.0, 2.0, -3.0], [0.5, 4.0]),
    "nearly of rank one": np.outer([1.0, 2.0], [0.5, 4.0]) + 1e-9 * np.eye(2),
    "far apart": np.diag([1e12, 1.0, 1e-12]),
    "a number": np.array([[-3.0]]),
}


@pytest.mark.parametrize("name", MATRICES)
def test_bounds_are_above_the_norm_and_close(name: str) -> None:
    matrix = MATRICES[name]
    sizes = np.linalg.svd(matrix, compute_uv=False)
    spectral, nuclear = (f(rational_matrix(matrix)) for f in (spectral_norm_above, nuclear_norm_above))
    assert spectral is not None
    assert nuclear is not None
    assert 0 <= to_float(spectral) / sizes[0] - 1 < 1e-12
    assert -1e-15 <= to_float(nuclear) / sizes.sum() - 1 < 1e-12


def test_matrix_norms_are_those_found_by_hand() -> None:
    square = rational_matrix(np.array([[9.0, 0.0], [0.0, 16.0]]))
    assert is_below(square, fmpq(16) + fmpq(1, 2**80))
    assert not is_below(square, fmpq(16))
    nothing = rational_matrix(np.zeros((2, 2)))
    assert spectral_norm_above(nothing) is None
    assert nuclear_norm_above(nothing) is None
