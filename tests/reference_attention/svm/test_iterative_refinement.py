"""Iterative refinement proves the solutions that rationals find, bounds its error, and returns None where the bound is
too large.

Notation: G are rows and h bounds; the duals λ solve G Gᵀ λ = h, and p = Gᵀ λ. R is an approximate inverse of G Gᵀ, and
the contraction a bound on 1 − R G Gᵀ.
"""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq, fmpq_mat

from reference_attention.exact import ratio, rational, to_float
from reference_attention.floats import EPS
from reference_attention.svm import least_norm as module
from reference_attention.svm.certificate import KeyRows
from reference_attention.svm.iterative_refinement import SPREAD, Unit, refine
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.ozaki_products import Twice
from tests.reference_attention.svm.test_max_margin import feasible

SHAPES = [(1, 2, 1), (2, 3, 2), (4, 6, 10), (6, 8, 20), (10, 10, 30), (30, 5, 150)]


def rows_of(*rows: tuple[float, ...]) -> Twice:
    """Return rows of floats as ``Twice`` with zero low parts."""
    return Twice(np.array(rows), np.zeros((len(rows), len(rows[0]))))


def exact_duals(rows: Twice, bounds: np.ndarray) -> tuple[list[fmpq], list[fmpq]]:
    """Return λ and p over the rationals, by elimination."""
    matrix = fmpq_mat(
        [
            [rational(a) + rational(b) for a, b in zip(*pair, strict=True)]
            for pair in zip(rows.high, rows.low, strict=True)
        ]
    )
    duals = (matrix * matrix.transpose()).solve(fmpq_mat(len(bounds), 1, [rational(h) for h in bounds]))
    return duals.entries(), (matrix.transpose() * duals).entries()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_refinement_in_floats_finds_the_solutions_that_rationals_find(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(module, "_by_balls", lambda *_: pytest.fail("floats were to tell"))
    for seed, exponent in enumerate((-400, -17, 0, 39)):
        keys, alpha = feasible(*shape, seed)
        keys = np.ldexp(keys, exponent)
        monkeypatch.setattr(module, "MANY", 1)
        floats = max_margin(keys, alpha)
        monkeypatch.setattr(module, "_by_floats", lambda *_: None)
        monkeypatch.setattr(module, "_by_balls", lambda *_: None)
        rationals = max_margin(keys, alpha)
        monkeypatch.undo()
        assert isinstance(floats, MaxMargin)
        assert isinstance(rationals, MaxMargin)
        assert floats._outcome._rounded is not None
        assert (floats.p == rationals.p).all()
        assert (floats.duals == rationals.duals).all()
        assert (floats.neighbours == rationals.neighbours).all()
        assert floats.exact.p == rationals.exact.p
        np.testing.assert_allclose(floats.margins, rationals.margins, rtol=1e-12)


def test_rows_of_keys_are_exact_sums_of_two_floats() -> None:
    """The rounding error of each difference of two keys is in the second float, in any unit."""
    keys = np.random.default_rng(0).normal(size=(3, 4, 5)) * np.array([1e-9, 1.0, 1e9])[:, None, None]
    rows = KeyRows(keys, np.array([1, 0, 3]))
    which = [0, 4, 8, 2]
    result = rows.twice(which)
    assert result is not None
    assert (result.high == rows.floats[which]).all()
    assert (result.low != 0).any()
    for k, j in enumerate(which):
        i, t = rows.pair(j)
        chosen, other = keys[i, [1, 0, 3][i]], keys[i, t]
        for a, b, high, low in zip(chosen, other, result.high[k], result.low[k], strict=True):
            assert (rational(high) + rational(low)) * fmpq(2) ** rows.scale == rational(a) - rational(b)


@pytest.mark.parametrize("condition", [0, 10, 18])
def test_the_error_bound_of_the_duals_holds(condition: int) -> None:
    """After each of three refinements λ errs by less than the bound; nearly dependent rows give larger bounds."""
    rng = np.random.default_rng(condition)
    high = rng.uniform(0.5, 1, size=(6, 9)) * rng.choice([-1.0, 1.0], size=(6, 9))
    high[1] = high[0] + high[1] * 2.0**-condition
    rows = Twice(high, high * rng.uniform(-1, 1, size=(6, 9)) * 2.0**-54)
    asked = np.ones(6)
    unit, (exact, _) = Unit(rows.high, rows.low), exact_duals(rows, asked)
    duals, before = Twice(unit.inverse @ asked, np.zeros(6)), np.inf
    for _ in range(3):
        point = unit.point(duals)
        residual = unit.residual(asked, point)
        assert residual is not None
        duals, off = unit.improve(duals, residual, point.error)
        away = max(abs(rational(a) + rational(b) - x) for a, b, x in zip(duals.high, duals.low, exact, strict=True))
        assert away <= rational(off)
        assert off < max(before, 1e-22 * 4.0**condition)
        before = off


def test_the_error_bound_of_one_refinement_is_the_sum_computed_by_hand() -> None:
    """The rows G are ((1, 0, 1/2), (0, 1, 0)); R and the contraction are prescribed and wrong, so that every term
    counts.
    """
    unit = Unit(np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]), np.zeros((2, 3)))
    unit.inverse, unit.contraction = np.array([[2.0, -1.0], [0.5, -4.0]]), 0.25
    residual = Twice(np.array([2.0**-48, -(2.0**-50)]), np.array([2.0**-99, -(2.0**-98)]), 2.0**-97)
    result, off = unit.improve(Twice(np.array([16.0, 8.0]), np.array([2.0**-60, 0.0])), residual, 2.0**-96)
    step = [2.0**-47 + 2.0**-50, 2.0**-49 + 2.0**-48]
    assert [rational(a) + rational(b) for a, b in zip(result.high, result.low, strict=True)] == [
        16 + rational(2.0**-60) - rational(step[0]),
        8 - rational(step[1]),
    ]
    beside = [2.0**-97 + 2.0**-99 + 1.5 * 2.0**-96, 2.0**-97 + 2.0**-98 + 2.0**-96]
    known = [2.0**-48, 2.0**-50]
    before = max(
        2 * (known[0] + beside[0]) + (known[1] + beside[1]), 0.5 * (known[0] + beside[0]) + 4 * (known[1] + beside[1])
    ) / (1 - 0.25)
    sums = [x + (2 + 4) * EPS * y for x, y in zip(beside, known, strict=True)]
    expected = 0.25 * before + max(2 * sums[0] + sums[1], 0.5 * sums[0] + 4 * sums[1]) + 16 * 2.0**-100
    assert expected * (1 + 2.0**-32) < off < expected * (1 + 2.0**-28)
    # If the contraction is 0, the earlier error vanishes; the roundings of products with R are a quarter of the bound.
    unit.contraction = 0.0
    _, off = unit.improve(Twice(np.array([16.0, 8.0]), np.zeros(2)), residual, 2.0**-96)
    expected = max(2 * sums[0] + sums[1], 0.5 * sums[0] + 4 * sums[1]) + 16 * 2.0**-100
    assert off == pytest.approx(expected, rel=1e-8, abs=0)
    unit.contraction = 0.25
    # If the residual's high part is zero, only the terms of its error are left.
    _, off = unit.improve(
        Twice(np.array([16.0, 8.0]), np.zeros(2)), Twice(np.zeros(2), residual.low, 2.0**-97), 2.0**-96
    )
    lost = max(2 * beside[0] + beside[1], 0.5 * beside[0] + 4 * beside[1])
    assert off == pytest.approx(0.25 * lost / 0.75 + lost + 16 * 2.0**-100, rel=1e-8, abs=0)


def test_the_bound_on_the_distance_of_p_is_that_computed_by_hand() -> None:
    unit = Unit(np.array([[1.0, 0.0, 0.5], [-0.5, 0.0, 1.0]]), np.zeros((2, 3)))
    result = unit.distance_bound(2.0**-70, 2.0**-69)
    expected = [3.5 * 2.0**-70, 0.0, 3.5 * 2.0**-70]
    assert result == pytest.approx(expected, rel=1e-8, abs=0)
    assert (result[[0, 2]] > expected[0] * (1 + 2.0**-32)).all()
    narrow = Unit(np.array([[1.0, 2.0**-30]]), np.zeros((1, 2)))
    assert (narrow.distance_bound(2.0**-70, 2.0**-110) > 2.0**-101).all()


def test_the_contraction_is_bounded_with_room_for_every_rounding() -> None:
    """Compare with sums by hand: 5 + 3 + 8 roundings of Σ |R| |G| |Gᵀ|, plus the size of 1 − R G Gᵀ itself."""
    rng = np.random.default_rng(5)
    high = rng.uniform(-1, 1, size=(3, 5))
    unit = Unit(high, np.zeros((3, 5)))
    sums = [
        sum(
            abs(unit.inverse[i, a]) * abs(high[a, k]) * abs(high[j, k])
            for a in range(3)
            for j in range(3)
            for k in range(5)
        )
        for i in range(3)
    ]
    left = np.abs(np.eye(3) - unit.inverse @ (high @ high.T)).sum(axis=1)
    expected = max(16 * EPS * item + own for item, own in zip(sums, left.tolist(), strict=True))
    assert expected * (1 + 2.0**-31) < unit.contraction < expected * (1 + 2.0**-29)
    assert Unit(np.ones((2, 3)), np.zeros((2, 3))).contraction > 0.5


def test_refinement_returns_none_where_the_rounding_of_a_dual_is_undecided() -> None:
    """Digits of p = (1 + 2^−52, 1 − 2^−52) suffice, but those of λ = (1, 2^−52) end at 2^−100."""
    assert refine(rows_of((1.0, 1.0), (1.0, -1.0)), np.array([2.0, 2.0**-51])) is None


def test_refinement_returns_none_for_dependent_or_nearly_dependent_rows() -> None:
    assert refine(rows_of((1.0, 2.0), (2.0, 4.0)), np.ones(2)) is None
    assert refine(rows_of((1.0, 0.0), (1.0, 2.0**-27)), np.ones(2)) is None
    assert refine(rows_of((0.0, 0.0), (1.0, 1.0)), np.ones(2)) is None


def test_refinement_returns_none_where_a_dual_is_not_positive() -> None:
    assert refine(rows_of((1.0, 0.0), (1.0, 1.0)), np.array([2.0, 1.0])) is None  # λ would be (3, −1)
    assert refine(rows_of((1.0, 0.0), (0.0, 1.0)), np.array([1.0, 0.0])) is None  # λ would be (1, 0)
    assert refine(rows_of((1.0, 0.0), (0.0, 1.0)), np.zeros(2)) is None


@pytest.mark.parametrize("exponent", [0, 9, -9, 200, -200, SPREAD])
def test_rows_of_any_size_within_the_limit_are_solved(exponent: int) -> None:
    """For rows (1, 3) and (2, −1) in other units, λ = (6, 11)/49 and p = (4, 1)/7."""
    rows = Twice(np.ldexp([[1.0, 3.0], [2.0, -1.0]], exponent), np.zeros((2, 2)))
    solution = refine(rows, np.ones(2))
    if exponent == SPREAD:  # the entry 3 · 2^SPREAD is beyond the limit
        assert solution is None
        return
    assert solution is not None
    assert solution.point.tolist() == np.ldexp([4 / 7, 1 / 7], -exponent).tolist()
    assert solution.duals.tolist() == np.ldexp([6 / 49, 11 / 49], -2 * exponent).tolist()


@pytest.mark.parametrize("apart", [0, 15, -30, 100])
def test_rows_whose_sizes_are_far_apart_are_solved_as_far_as_digits_suffice(apart: int) -> None:
    """The solution is p = (2^−apart, 2/3), λ = (4^−apart, 4/9); if ``apart`` exceeds the digits that are kept, the
    result is None.
    """
    solution = refine(rows_of((2.0**apart, 0.0), (0.0, 1.5)), np.ones(2))
    assert (solution is None) == (apart == 100)
    if solution is not None:
        assert solution.point.tolist() == [2.0**-apart, 2 / 3]
        assert solution.duals.tolist() == [4.0**-apart, 4 / 9]


def test_a_coordinate_zero_in_all_rows_is_accepted_but_a_zero_by_cancellation_is_not() -> None:
    solution = refine(rows_of((1.0, 0.0, 3.0), (2.0, 0.0, -1.0)), np.ones(2))
    assert solution is not None
    assert solution.point.tolist() == [4 / 7, 0.0, 1 / 7]
    assert refine(rows_of((1.0, 1.0), (1.0, -1.0)), np.ones(2)) is None  # p would be (1, 0)


def test_refinement_returns_none_where_a_coordinate_of_p_is_halfway_between_two_floats() -> None:
    """With bounds 1 and b, p = ((1 + b)/2, (1 − b)/2); its first coordinate has 54 bits, which is a tie, or 53."""
    rows = rows_of((1.0, 1.0), (1.0, -1.0))
    assert refine(rows, np.array([1.0, 2.0**-10 + 2.0**-53])) is None
    b = 2.0**-10 + 2.0**-52
    solution = refine(rows, np.array([1.0, b]))
    assert solution is not None
    assert solution.point.tolist() == [(1 + b) / 2, (1 - b) / 2]
    assert solution.duals.tolist() == [1 / 2, b / 2]


def test_each_entry_of_the_refined_solution_is_rounded_once() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        rows = Twice(high := rng.normal(size=(4, 7)), high * rng.uniform(-1, 1, size=high.shape) * 2.0**-54)
        bounds = np.abs(rng.normal(size=4))
        duals, point = exact_duals(rows, bounds)
        solution = refine(rows, bounds)
        assert (solution is not None) == all(x > 0 for x in duals)
        if solution is not None:
            assert solution.duals.tolist() == [ratio(x.p, x.q) for x in duals]
            assert solution.point.tolist() == [to_float(x) for x in point]
