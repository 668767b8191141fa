"""The residual that a float solution reports, computed by hand for one row (1), with p ≥ 1 and dual λ, and other
results.

A weight u of the least-squares problem gives the point and dual p = λ = u/(1 − u), so u = ½ gives the solution p = 1.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.svm.float_solution import FloatSolution, _by_dual_active_set, float_solution

DESIGN = np.ones((2, 1))


def at(u: float) -> FloatSolution:
    return FloatSolution(np.array([u]), DESIGN, np.array([0.0, 1.0]) - DESIGN[:, 0] * u)


def test_the_exact_solution_has_residual_zero() -> None:
    solution = float_solution(np.ones((1, 1)), np.ones(1, dtype=np.int64))
    assert solution.kkt_residual == pytest.approx(0.0, abs=4e-16)
    assert at(0.5).kkt_residual == 0.0


def test_a_point_that_is_too_short_violates_feasibility_most() -> None:
    """At u = ¼, p = λ = ⅓: the margin p misses 1 by 2/3, and λ times this is 2/9; the residual is the larger of these
    two numbers, divided by 1 + p².
    """
    assert at(0.25).kkt_residual == pytest.approx((2 / 3) / (1 + 1 / 9))


def test_a_point_that_is_too_long_violates_complementarity() -> None:
    """At u = ¾, p = λ = 3: the margin p exceeds 1 by 2, and λ times this is 6, which is divided by 1 + p² = 10."""
    assert at(0.75).kkt_residual == pytest.approx(6 / 10)


def test_without_a_point_the_residual_is_infinite() -> None:
    assert at(1.0).kkt_residual == math.inf


def test_the_residual_agrees_with_the_least_squares_problem() -> None:
    solution = float_solution(np.array([[1.0, 0.5], [-0.25, 1.0]]), np.ones(2, dtype=np.int64))
    assert solution.residual == pytest.approx(np.array([0.0, 0.0, 1.0]) - solution.design @ solution.u)


@pytest.mark.parametrize("exponent", [-300, -3, 3, 300])
@pytest.mark.parametrize("zero_row", [False, True])
def test_the_guess_of_tight_constraints_does_not_depend_on_the_scale_of_the_rows(exponent: int, zero_row: bool) -> None:
    rows, bounds = np.array([[1.0, 0.5], [-0.25, 1.0], [3.0, 1.0]]), np.ones(3, dtype=np.int64)
    if zero_row:  # its constraint is 0·p ≥ 0
        rows, bounds = np.vstack([rows, np.zeros(2)]), np.append(bounds, 0)
    here, there = float_solution(rows, bounds), float_solution(np.ldexp(rows, exponent), bounds)
    assert here.kkt_residual <= 1e-14
    assert there.kkt_residual <= 1e-14
    assert np.array_equal(there.u, here.u)


def test_rows_of_zeros_leave_no_guess_of_tight_constraints() -> None:
    solution = float_solution(np.zeros((2, 3)), np.array([1, 1]))
    assert solution.kkt_residual == math.inf
    assert np.isfinite(solution.design).all()


def test_daqp_finds_the_point_wherever_there_is_one() -> None:
    """Use DAQP alone; NNLS, the fallback where DAQP fails, takes many times as long."""
    rows = np.random.default_rng(0).normal(size=(12, 6)) + 2.0
    design = np.vstack([rows.T, np.ones(12)])
    solution = _by_dual_active_set(design)
    assert solution is not None
    assert FloatSolution(solution, design, np.eye(7)[6] - design @ solution).kkt_residual <= 1e-12
    assert _by_dual_active_set(np.array([[1.0, -1.0], [1.0, 1.0]])) is None  # no p has p ≥ 1 and −p ≥ 1
