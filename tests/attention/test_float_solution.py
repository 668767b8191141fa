"""The residual that a float solution reports, by hand: one row (1), p ≥ 1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attention.float_solution import FloatSolution, float_solution

DESIGN = np.ones((2, 1))


def at(u: float) -> FloatSolution:
    return FloatSolution(np.array([u]), DESIGN, np.array([0.0, 1.0]) - DESIGN[:, 0] * u)


def test_the_solution_has_none() -> None:
    found = float_solution(np.ones((1, 1)), np.ones(1, dtype=np.int64))
    assert found.kkt_residual == pytest.approx(0.0, abs=4e-16)
    assert at(0.5).kkt_residual == 0.0


def test_a_point_that_is_too_short_violates_feasibility_most() -> None:
    """u = ¼: p = λ = ⅓, a margin of ⅓ − 1, λ times it 2/9; relative to 1 + p²."""
    assert at(0.25).kkt_residual == pytest.approx((2 / 3) / (1 + 1 / 9))


def test_a_point_that_is_too_long_violates_complementarity() -> None:
    """u = ¾: p = λ = 3, a margin of 2 too many, λ times it 6."""
    assert at(0.75).kkt_residual == pytest.approx(6 / 10)


def test_without_a_point_it_is_infinite() -> None:
    assert at(1.0).kkt_residual == math.inf
