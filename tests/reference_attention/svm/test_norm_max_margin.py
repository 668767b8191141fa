"""The largest margin in any norm: by hand, against its dual over the rationals, and where floats mislead."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq

from reference_attention.errors import InvalidInput
from reference_attention.norms import conjugate
from reference_attention.svm import barriers
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.norm_max_margin import NormMaxMargin, exact_norm, norm_max_margin

FIRST = np.array([0])


def of_rows(rows: list[list[float]], norm: float) -> NormMaxMargin:
    solution = norm_max_margin(np.array([[[0.0] * len(rows[0]), *(-np.array(row) for row in rows)]]), FIRST, norm)
    assert solution is not None
    return solution


@pytest.mark.parametrize(("norm", "margin"), [(math.inf, fmpq(4, 3)), (1.0, fmpq(1))])
def test_solutions_of_linear_programs_are_those_found_by_hand(norm: float, margin: fmpq) -> None:
    """For rows (−1, 1, −1) and (−1, −1, 2), −e_1 has margins of 1, and duals λ = (½, ½) combine the rows to
    (−1, 0, ½).
    """
    result = of_rows([[-1, 1, -1], [-1, -1, 2]], norm)
    assert (result.primal_residual, result.duality_gap) == (0, 0)
    assert 1 / exact_norm(result.exact_p, norm) == margin


def test_the_euclidean_solution_is_att_svm() -> None:
    keys = np.random.default_rng(0).integers(-4, 5, (2, 3, 4)).astype(float)
    svm, solution = max_margin(keys, np.array([0, 1])), norm_max_margin(keys, np.array([0, 1]), 2.0)
    assert isinstance(svm, MaxMargin)
    assert solution is not None
    assert solution.exact_p == list(svm.exact.p)
    assert solution.margin == pytest.approx(svm.margin, rel=1e-14)


@pytest.mark.parametrize("norm", [1.0, 1.25, 2.0, 4.0, math.inf])
def test_primal_and_dual_bounds_meet_on_random_data(norm: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        keys = rng.normal(size=(2, 3, 5))
        solution = norm_max_margin(keys, np.array([0, 2]), norm)
        if solution is not None:
            assert solution.primal_residual == 0
            assert abs(solution.duality_gap) <= (0 if norm in (1, math.inf) else 1e-8)


@pytest.mark.parametrize("norm", [1.0, math.inf])
def test_constraints_that_floats_call_tight_wrongly_are_exchanged(norm: float) -> None:
    """Logits tie up to the last bit, and some rows are a million times longer than others."""
    ties = [[0.3125, -0.017000000000000002, -0.4925], [0.31249999999999994, 0.26187500000000002, 1.3]]
    for rows in (ties, [[1e6, 1.0], [1e-3, 2e-3], [1e-3, 2e-3 + 1e-12]]):
        assert of_rows(rows, norm).duality_gap == 0


NEAR_TIES: list[list[list[float]]] = [
    [[1e-10, 1e-10], [1, -2]],
    [[3e-11, 3e-11], [3, -6]],
    [[1, 1e-13], [-1, 1e-13]],
    [[1, 2, 3], [1, 2, 3 + 1e-9], [1, 2 + 1e-13, 3], [-1e-6, 1e-6, 1e-6]],
    [[1, 0.1], [1, 0.1]],
    [[1e6, -1e6], [-1e6, 1e6 + 1e-4], [1e-6, 0]],
]


@pytest.mark.parametrize("norm", [1.0, 1.25, 1.5, 3.0, 4.0, math.inf])
@pytest.mark.parametrize("rows", NEAR_TIES)
def test_the_margin_is_found_for_rows_that_nearly_coincide_or_cancel(rows: list[list[float]], norm: float) -> None:
    """Rows differ very much in size, nearly coincide or nearly cancel."""
    assert abs(of_rows(rows, norm).duality_gap) <= 1e-11


@pytest.mark.parametrize("norm", [1.0, 1.5, 3.0, math.inf])
def test_the_solution_is_invariant_under_permutations_and_units(norm: float) -> None:
    """Change units, permute and flip coordinates, add zero coordinates, repeat a row."""
    rows = np.array([[1e-10, 1e-10, 0.3], [1, -2, 0.1], [1, -2, 0.1 + 1e-12]])
    margin = of_rows(rows.tolist(), norm).margin
    other = [rows[::-1], rows[:, ::-1], rows * [1, -1, 1], np.hstack([rows, np.zeros((3, 1))]), rows[[0, 1, 2, 1]]]
    for changed in other:
        assert of_rows(changed.tolist(), norm).margin == pytest.approx(margin, rel=1e-11)
    for unit in (2.0**-60, 2.0**60):
        assert of_rows((rows * unit).tolist(), norm).margin == pytest.approx(margin * unit, rel=1e-12)


def test_with_more_coordinates_than_rows_the_solution_is_the_same() -> None:
    """With many coordinates, such as features, the barrier method solves as many equations as there are rows."""
    rows = np.random.default_rng(3).normal(size=(3, 60))
    assert of_rows(rows.tolist(), 1.5).duality_gap <= 1e-11


@pytest.mark.parametrize("norm", [1.5, 3.0])
def test_a_solution_without_a_proof_is_not_returned(monkeypatch: pytest.MonkeyPatch, norm: float) -> None:
    """Replace the solver's duals by wrong ones, with errors of 10 % and 20 %."""
    rows = [[1.0, 2.0], [2.0, 1.0], [1.0, -0.5]]
    right = of_rows(rows, norm)
    off = [x * (1 + fmpq(j, 10)) for j, x in enumerate(right.exact_duals)]
    monkeypatch.setattr(barriers, "least_power", lambda *arguments: (right.exact_p, off))
    keys = np.array([[[0.0, 0.0], *(-np.array(row) for row in rows)]])
    assert norm_max_margin(keys, FIRST, norm) is None
    monkeypatch.setattr(barriers, "least_power", lambda *arguments: (right.exact_p, right.exact_duals))
    assert norm_max_margin(keys, FIRST, norm) is not None


def test_a_wrong_point_has_a_large_duality_gap() -> None:
    right = of_rows([[1, 2], [2, 1], [1, -0.5]], math.inf)
    assert right.duality_gap == 0
    assert replace(right, exact_p=[fmpq(1), fmpq(1, 2)]).duality_gap > 0.1


def test_inseparable_data_have_no_solution_in_any_norm() -> None:
    keys = np.array([[[0.0], [1.0], [-1.0]]])
    assert all(norm_max_margin(keys, FIRST, norm) is None for norm in (1.0, 1.5, 2.0, math.inf))


def test_each_norm_has_its_conjugate() -> None:
    assert (conjugate(1), conjugate(math.inf), conjugate(2), conjugate(3)) == (math.inf, 1, 2, 1.5)
    with pytest.raises(InvalidInput, match="norm"):
        norm_max_margin(np.zeros((1, 2, 1)), FIRST, 0.5)
