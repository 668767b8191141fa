"""Computations on large cases stay within time and memory."""

from __future__ import annotations

import numpy as np
import pytest

from reference_attention.problem import Problem
from theorems.core.points import ENTRIES, LEAST_POINTS, affordable
from theorems.token_selection.softmax.smoothness import diameters


def test_large_problems_are_checked_at_fewer_points() -> None:
    small, large = (Problem(np.ones((1, T, d)), np.zeros((1, T))) for T, d in ((5, 5), (256, 256)))
    assert affordable(small, 150) == 150
    assert affordable(large, 150) == LEAST_POINTS
    assert affordable(large, 4) == 4
    assert affordable(Problem(np.ones((16, 8, 128)), np.zeros((16, 8))), 150) == ENTRIES // (16 * 8 * 128)


@pytest.mark.parametrize("unit", [1.0, 1e-130, 1e130])
def test_diameters_of_keys_computed_token_by_token_agree_with_those_over_all_pairs(unit: float) -> None:
    keys = np.random.default_rng(0).normal(size=(3, 9, 4)) * unit
    keys[1] = keys[1, :1]
    result = diameters(keys)
    brute = np.max(np.linalg.norm((keys[:, :, None] - keys[:, None]) / unit, axis=-1), axis=(1, 2)) * unit
    assert np.all(np.abs(result.value - brute) <= result.error + 4e-16 * brute)
    assert result.value[1] == result.error[1] == 0
    assert np.all(result.error <= 1e-14 * brute)
