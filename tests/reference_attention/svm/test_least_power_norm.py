"""ATT-SVM in the norms ‖·‖_q: against a conic solver, by hand, and with its certificate; q' is the conjugate
exponent.
"""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
import pytest

from generators.datasets import dataset_named
from generators.random_trials import random_trial
from reference_attention.errors import InvalidInput
from reference_attention.svm import least_power_norm as module
from reference_attention.svm.least_power_norm import _program, _refine, difference_rows, kkt_residual, least_power_norm
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.norm_max_margin import norm_max_margin

NORMS = (1.1, 1.5, 2.0, 2.5, 3.0, 8.0, np.inf)


def random_data(number: int) -> tuple[np.ndarray, np.ndarray, MaxMargin]:
    problem = random_trial(0, 10, number).problem
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    return problem.keys, problem.optimal, svm


@pytest.mark.parametrize("norm", NORMS)
def test_the_least_power_norm_agrees_with_a_conic_solver(norm: float) -> None:
    keys, alpha, svm = random_data(2)
    solution = least_power_norm(keys, alpha, norm, svm.p)
    assert solution is not None
    rows = difference_rows(keys, alpha)
    p = cvxpy.Variable(keys.shape[2])
    value = cvxpy.Problem(cvxpy.Minimize(cvxpy.pnorm(p, norm)), [rows @ p >= 1]).solve(solver="CLARABEL")
    assert 1 / solution.margin == pytest.approx(value, rel=1e-7)  # Clarabel's tolerance is 1e-8
    assert (rows @ solution.p).min() == pytest.approx(1.0, abs=1e-9)
    if np.isfinite(norm):
        assert solution.p == pytest.approx(p.value, abs=1e-4)


@pytest.mark.parametrize("number", range(4))
def test_in_the_euclidean_norm_the_solution_is_p_mm(number: int) -> None:
    keys, alpha, svm = random_data(number)
    solution = least_power_norm(keys, alpha, 2.0, svm.p)
    assert solution is not None
    assert solution.p == pytest.approx(svm.p, rel=1e-9)
    assert solution.margin == pytest.approx(svm.margin, rel=1e-12)


def test_the_solution_for_one_row_is_that_of_the_formula() -> None:
    """The shortest p in ‖·‖_q with a·p ≥ 1 has p_j ∝ sign(a_j)|a_j|^{q'−1} and the norm 1/‖a‖_{q'}."""
    keys, alpha = np.array([[[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]]]), np.array([0])
    for norm in (1.5, 3.0):
        conjugate = norm / (norm - 1)
        solution = least_power_norm(keys, alpha, norm, np.array([1.0, 0.0, 0.0]))
        assert solution is not None
        a = keys[0, 0]
        assert solution.margin == pytest.approx(np.linalg.norm(a, ord=conjugate), rel=1e-12)
        due = np.sign(a) * np.abs(a) ** (conjugate - 1)
        assert solution.direction == pytest.approx(due / np.linalg.norm(due), abs=1e-8)


def test_the_solution_for_rows_in_another_unit_is_the_same_in_that_unit() -> None:
    keys, alpha, svm = random_data(1)
    for norm in (1.5, np.inf):
        first, second = (least_power_norm(keys * unit, alpha, norm, svm.p) for unit in (1.0, 2.0**60))
        assert first is not None
        assert second is not None
        assert second.margin == pytest.approx(first.margin * 2.0**60, rel=1e-9)


@pytest.mark.parametrize("norm", [1.5, 3.0])
def test_wrong_solutions_have_a_large_kkt_residual(norm: float) -> None:
    keys, alpha, svm = random_data(2)
    rows = difference_rows(keys, alpha)
    solution = least_power_norm(keys, alpha, norm, svm.p)
    assert solution is not None
    assert kkt_residual(rows, norm, solution.p) < 1e-12
    assert kkt_residual(rows, norm, 0.999 * solution.p) > 1e-4  # the margin is 0.999
    assert kkt_residual(rows, norm, svm.p) > 1e-3  # the point is optimal in another norm
    assert kkt_residual(rows, norm, 2 * solution.p) > 0.1  # no constraint is tight


def test_the_kkt_residual_is_that_computed_by_hand() -> None:
    """The residual is the largest violation of a KKT condition, in any units."""
    rows = np.eye(2)
    for unit in (2.0**-10, 1.0, 2.0**10):
        # The slope of the norm has a share of 1/√5 along a coordinate in which the row is zero.
        p = unit * np.array([1.0, 0.5])
        assert kkt_residual(rows[:1] / unit, 2.0, p) == pytest.approx(1 / np.sqrt(5), rel=1e-12)
    # Two rows span both coordinates; the second has margin ½ instead of 1.
    assert kkt_residual(rows, 2.0, np.array([1.0, 0.5])) == 0.5
    # The slope of the norm is zero at the first point, p = 0, and beyond the floats at the second.
    assert kkt_residual(rows, 3.0, np.zeros(2)) == np.inf
    with np.errstate(over="ignore"):
        assert kkt_residual(rows, 3.0, np.array([-1e200, 1.0])) == np.inf


@pytest.mark.parametrize("norm", NORMS[:-1])
def test_newton_s_method_needs_at_most_five_steps(monkeypatch: pytest.MonkeyPatch, norm: float) -> None:
    """Newton's method doubles the digits: from a relative error of 1e-3, five steps reach the rounding."""
    keys, alpha, svm = random_data(2)
    rows = difference_rows(keys, alpha)
    solution = least_power_norm(keys, alpha, norm, svm.p)
    assert solution is not None
    unit = np.linalg.norm(svm.p)
    monkeypatch.setattr(module, "NEWTON", 5)
    p, residual = _refine(rows * unit, norm, 1.001 * solution.p / unit, 1e-2)
    assert residual <= 1e-12
    assert p * unit == pytest.approx(solution.p, abs=1e-9 * unit)


@pytest.mark.parametrize("norm", [1.5, 3.0])
def test_a_constraint_that_is_nearly_tight_has_no_multiplier(norm: float) -> None:
    """The row of the third token is 1.0005 times that of the second, so its constraint is within 1e-2 of tight, but
    must get no multiplier.
    """
    keys, alpha = np.array([[[2.0, 1.0], [0.0, 0.0], [-0.001, -0.0005]]]), np.array([0])
    alone = least_power_norm(keys[:, :2], alpha, norm, np.ones(2))
    solution = least_power_norm(keys, alpha, norm, np.ones(2))
    assert alone is not None
    assert solution is not None
    assert solution.p == pytest.approx(alone.p, abs=1e-9)


@pytest.mark.parametrize("scale", [2.0**-7, 1.0, 2.0**7])
def test_a_linear_program_is_judged_by_its_dual_value(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """Try a feasible point that is too long, an infeasible point, and multipliers in other units."""
    keys, alpha, svm = random_data(2)
    rows = difference_rows(keys, alpha) * scale
    best, residual = _program(rows, np.inf)
    assert residual <= 1e-12
    least = np.abs(best).max()
    worse = svm.p / scale  # its least margin is 1
    gap = np.abs(worse).max() / least - 1
    assert gap > 0.05
    solve = module.linprog
    given = {"factor": 1.0, "duals": 1.0}

    def other(*args: Any, **options: Any) -> Any:
        solution = solve(*args, **options)
        solution.x = np.append(given["factor"] * worse, 0.0)
        solution.ineqlin.marginals = given["duals"] * solution.ineqlin.marginals
        return solution

    monkeypatch.setattr(module, "linprog", other)
    for factor, duals in ((1.0, 1.0), (2.0, 1.0), (1.0, 0.5), (1.0, 4.0), (0.99, 1.0), (0.25, 1.0)):
        given.update(factor=factor, duals=duals)
        assert _program(rows, np.inf)[1] == pytest.approx(max(gap, 1 - factor), rel=1e-9)
    given["duals"] = 0.0
    assert _program(rows, np.inf)[1] > 1e200  # the lower bound proves nothing


def test_no_solution_is_returned_where_the_solver_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, alpha, svm = random_data(2)
    monkeypatch.setattr(module, "NEWTON", 0)
    monkeypatch.setattr(module, "minimize", lambda *arguments, **options: type("Found", (), {"x": arguments[1]}))
    assert least_power_norm(keys, alpha, 3.0, svm.p) is None


def test_bad_input_is_refused() -> None:
    problem = dataset_named("figure-1a").problem
    with pytest.raises(InvalidInput, match="norm: 1"):
        least_power_norm(problem.keys, problem.optimal, 1.0, np.ones(2))
    for point in ([0.0, -1.0], [0.0, 0.0], [0.0, -(2.0**-20)]):
        with pytest.raises(InvalidInput, match="the least margin of alpha is"):
            least_power_norm(problem.keys, problem.optimal, 3.0, np.array(point))


def test_a_point_of_small_residual_and_large_duality_gap_is_not_accepted() -> None:
    """One row is 1e11 times smaller than another, so that the KKT conditions seem to hold far from p."""
    keys, alpha = np.array([[[0.0, 0.0], [-3e-11, -3e-11], [-3.0, 6.0]]]), np.array([0])
    svm = max_margin(keys, alpha)
    assert isinstance(svm, MaxMargin)
    for norm in (1.5, 3.0):
        solution = least_power_norm(keys, alpha, norm, svm.p)
        right = norm_max_margin(keys, alpha, norm)
        assert right is not None
        assert solution is None or solution.margin == pytest.approx(right.margin, rel=1e-8)
