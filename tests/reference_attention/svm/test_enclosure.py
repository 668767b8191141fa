"""Ball arithmetic proves the solutions that rational arithmetic finds, and returns nothing where an equality is in
doubt.

Notation: p is the shortest vector whose products with the rows are at least 1, and λ are the duals of these
constraints.
"""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq, fmpz, fmpz_mat

from reference_attention.exact import ratio
from reference_attention.svm import least_norm as module
from reference_attention.svm.certificate import KeyRows
from reference_attention.svm.enclosure import BITS, enclose, round_balls
from reference_attention.svm.least_norm import IntegerRows, Outcome, least_norm
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.reference_attention.svm.test_max_margin import feasible

SHAPES = [(1, 2, 1), (2, 3, 2), (4, 6, 10), (6, 8, 20), (10, 10, 30)]


def two_solutions(monkeypatch: pytest.MonkeyPatch, keys: np.ndarray, alpha: np.ndarray) -> tuple[MaxMargin, MaxMargin]:
    """Return the solution by ball arithmetic, then the solution by rationals alone."""
    monkeypatch.setattr(module, "_by_floats", lambda *_: None)
    monkeypatch.setattr(module, "MANY", 1)
    by_balls = max_margin(keys, alpha)
    monkeypatch.setattr(module, "MANY", 10**9)
    by_rationals = max_margin(keys, alpha)
    assert isinstance(by_balls, MaxMargin)
    assert isinstance(by_rationals, MaxMargin)
    assert by_rationals._outcome._rounded is None
    return by_balls, by_rationals


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ball_arithmetic_finds_the_solutions_that_rational_arithmetic_finds(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    for seed, exponent in enumerate((-40, -17, -1, 0, 6, 39)):
        keys, alpha = feasible(*shape, seed)
        balls, rationals = two_solutions(monkeypatch, np.ldexp(keys, exponent), alpha)
        assert balls._outcome._rounded is not None
        assert (balls.p == rationals.p).all()
        assert (balls.duals == rationals.duals).all()
        assert (balls.neighbours == rationals.neighbours).all()
        assert balls.exact.p == rationals.exact.p
        assert balls.exact.duals == rationals.exact.duals
        np.testing.assert_allclose(balls.margins, rationals.margins, rtol=1e-12)


def test_a_margin_of_exactly_1_without_a_dual_is_left_to_rational_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a token occurs twice, the second copy has margin 1, though its constraint has no positive dual."""
    keys, alpha = feasible(4, 6, 10, 0)
    i, t = np.argwhere(max_margin(keys, alpha).neighbours)[0]  # type: ignore[union-attr]
    twice = np.concatenate([keys, keys[:, t : t + 1]], axis=1)
    balls, rationals = two_solutions(monkeypatch, twice, alpha)
    monkeypatch.undo()
    monkeypatch.setattr(module, "MANY", 1)
    floats = max_margin(twice, alpha)
    assert isinstance(floats, MaxMargin)
    for solution in (balls, floats):
        assert solution._outcome._rounded is None
        assert solution.neighbours[i, [t, -1]].all()
        assert (solution.neighbours == rationals.neighbours).all()


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_margin_that_differs_from_1_by_less_than_float_rounding_is_resolved(
    monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    """Two rows fix p = (1, 1/K); floats do not resolve the margin of the third, N + 1 − (N K − off)/K = 1 + off/K."""
    monkeypatch.setattr(module, "MANY", 1)
    n, k = 2**45 + 12345, 2**19 + 77
    matrix = fmpz_mat([[1, 0], [0, k], [n + 1, off - n * k]])
    solution = least_norm(IntegerRows(matrix, 0), np.array([1, 1, 1]), np.array([1.0, 1.0, 0.0]))
    assert (solution._rounded is not None) == (off == 1)
    assert solution.tight[2] == (off <= 0)
    if off == 1:
        assert solution.margins[2] == ratio(fmpz(k + 1), fmpz(k))


def test_a_margin_that_balls_hold_as_exactly_1_is_still_left_to_rational_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here p = (1, 1) without rounding, and the third row equals the first."""
    monkeypatch.setattr(module, "MANY", 1)
    rows = IntegerRows(fmpz_mat([[1, 0], [0, 1], [1, 0]]), 0)
    solution = least_norm(rows, np.ones(3, dtype=np.int64), np.array([1.0, 1.0, 0.0]))
    assert solution.tight.all()


def test_margins_do_not_depend_on_the_units_of_the_rows() -> None:
    matrix = fmpz_mat([[3, 1], [-1, 2]])
    result = enclose(matrix * 8, 3, [1, 1])
    assert result is not None
    for shift in (0, 3, 7):
        assert round_balls(result.margins(matrix * 2**shift, shift), 0).tolist() == [1.0, 1.0]  # type: ignore[union-attr]


def test_a_wrong_guess_of_the_tight_constraints_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong guesses have a negative λ, a violated constraint, or dependent rows."""
    monkeypatch.setattr(module, "MANY", 1)
    keys, alpha = feasible(4, 6, 10, 1)
    rows = KeyRows(keys, alpha)
    bounds = np.ones(len(rows.inputs), dtype=np.int64)
    right = least_norm(rows, bounds)
    for guess in (np.ones(20), np.eye(20)[0], np.eye(20)[right.support[0]]):
        solution: Outcome = least_norm(rows, bounds, guess)
        assert solution._rounded is None
        assert solution.support == right.support
        assert solution.exact == right.exact
    assert enclose(fmpz_mat([[1, 2], [2, 4]]), 0, [1, 1]) is None
    assert enclose(fmpz_mat([[1, 0], [1, 1]]), 0, [2, 1]) is None  # λ would be (3, −1)
    assert enclose(fmpz_mat([[1, 0], [0, 1]]), 0, [1, 0]) is None  # λ would be (1, 0)


def test_ill_conditioned_rows_are_solved_with_more_bits_or_with_rationals() -> None:
    """The directions of rows (2^k, 1) and (2^k + 1, −1) are about 2^−k apart; the Gram matrix loses 2k bits."""
    for k, bits in ((10, BITS[0]), (45, BITS[1]), (70, BITS[1]), (200, None)):
        rows, p = ((2**k, 1), (2**k + 1, -1)), (3 * 2**k + 1, 1)
        result = enclose(fmpz_mat(rows), 0, [a * p[0] + b * p[1] for a, b in rows])
        assert (result and result.bits) == bits
        if result is not None:
            assert round_balls(result.point, 0).tolist() == list(map(float, p))  # type: ignore[union-attr]
            assert round_balls(result.duals, 0).tolist() == [2, 1]  # type: ignore[union-attr]


def test_a_ball_is_rounded_to_the_nearest_float_or_not_at_all() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        matrix = fmpz_mat(1, 1, [int(rng.integers(1, 2**62)) * 2 + 1])
        result = enclose(matrix, 0, [1])
        assert result is not None
        value = round_balls(result.point, seed - 10)
        assert value is not None
        assert value[0] == ratio(fmpz(1), matrix[0, 0], seed - 10)
    halfway = enclose(fmpz_mat([[1]]), 0, [2**53 + 1])
    assert halfway is not None
    assert round_balls(halfway.point, 0) is None or round_balls(halfway.point, 0)[0] == float(2**53 + 1)  # type: ignore[index]


def test_the_rational_solution_is_computed_on_first_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 1)
    solution = max_margin(*feasible(6, 8, 20, 3))
    assert isinstance(solution, MaxMargin)
    assert "exact" not in solution._outcome.__dict__
    assert sum(solution.exact.duals.values(), fmpq(0)) == solution.exact.norm_squared
