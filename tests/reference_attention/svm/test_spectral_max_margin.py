"""The largest margin in the spectral and the nuclear norm: by hand, and against its dual."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.norms import Schatten, conjugate, length, name_of
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.norm_max_margin import norm_max_margin

FIRST = np.zeros(2, dtype=np.int64)
SPECTRAL, NUCLEAR = Schatten(math.inf, (2, 2)), Schatten(1.0, (2, 2))
ORTHOGONAL = OuterKeys(np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]), np.eye(2))
"""Rows e_1 e_1ᵀ and e_2 e_2ᵀ."""


def test_two_orthogonal_rows_by_hand() -> None:
    """W = I has margins of 1 and ‖I‖_op = 1; in ‖·‖_⋆ it is twice as long, and λ = (½, ½) proves both."""
    spectral, nuclear = (norm_max_margin(ORTHOGONAL, FIRST, norm) for norm in (SPECTRAL, NUCLEAR))
    assert spectral is not None
    assert spectral.margin == pytest.approx(1, rel=1e-8)
    assert spectral.p == pytest.approx([1, 0, 0, 1], abs=1e-4)
    assert nuclear is not None
    assert nuclear.margin == pytest.approx(0.5, rel=1e-8)


@pytest.mark.parametrize("power", [1.0, math.inf])
def test_bounds_meet_on_random_data(power: float) -> None:
    rng, met = np.random.default_rng(0), 0
    for _ in range(12):
        n, T, d, e = (int(x) for x in rng.integers(2, 5, 4))
        keys = OuterKeys(rng.normal(size=(n, T, d)), rng.normal(size=(n, e)))
        found = norm_max_margin(keys, np.zeros(n, dtype=np.int64), Schatten(power, (d, e)))
        if found is not None:
            met += 1
            assert found.primal_residual == 0
            assert abs(found.duality_gap) <= 1e-7
    assert met >= 5


def test_what_cannot_be_separated_has_none() -> None:
    keys = OuterKeys(np.array([[[0.0], [1.0]], [[0.0], [-1.0]]]), np.ones((2, 1)))
    for power in (1.0, math.inf):
        assert norm_max_margin(keys, FIRST, Schatten(power, (1, 1))) is None


def test_norms_of_matrices() -> None:
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
