"""Sums of products, computed in slices of bits, agree with the rationals up to the reported bound."""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq

from reference_attention.exact import rational
from reference_attention.svm.ozaki_products import KEPT, Grid, Twice, two_sum

SHAPES = [(1, 1), (3, 2), (8, 30), (14, 100), (5, 700)]


def exactly(numbers: Twice) -> list[fmpq]:
    return [rational(a) + rational(b) for a, b in zip(numbers.high.ravel(), numbers.low.ravel(), strict=True)]


def made(rng: np.random.Generator, *shape: int, spread: float = 30.0) -> Twice:
    """Return numbers of size at most 1, some far smaller, with low parts of either sign."""
    high = rng.uniform(-1, 1, size=shape) * 2.0 ** -np.floor(rng.uniform(0, spread, size=shape))
    return Twice(high, high * rng.uniform(-1, 1, size=shape) * 2.0**-54)


@pytest.mark.parametrize("terms", [1, 2, 7, 8, 127, 128, 1000, 10**6])
def test_a_sum_of_products_of_slices_is_exact_in_a_float(terms: int) -> None:
    result = Grid.for_sums_of(terms)
    assert terms * 2.0 ** (2 * result.bits) <= 2.0**53
    assert (2 * terms + 1) * 2.0 ** (2 * result.bits + 2) > 2.0**53  # one more bit could be inexact for twice as many
    assert result.bits * (result.slices - 1) < KEPT <= result.bits * result.slices


@pytest.mark.parametrize("shape", SHAPES)
def test_slices_of_a_number_are_integers_that_add_up_to_it(shape: tuple[int, int]) -> None:
    numbers, cut = made(np.random.default_rng(0), *shape, spread=90.0), Grid.for_sums_of(max(shape))
    result = cut.cut(numbers.high, numbers.low)
    assert (result == np.rint(result)).all()
    assert np.abs(result).max() <= 2.0**cut.bits
    unit = fmpq(1, 2**cut.bits)
    for k, x in enumerate(exactly(numbers)):
        total = sum(
            (rational(q) * unit ** (a + 1) for a, q in enumerate(result.reshape(len(result), -1)[:, k])), fmpq(0)
        )
        assert abs(x - total) <= unit**cut.slices


def test_numbers_of_size_1_are_sliced_like_others() -> None:
    result = Grid.for_sums_of(100).cut(np.array([1.0, -1.0]), np.array([2.0**-53, -(2.0**-54)]))
    assert result[0].tolist() == [2.0**23, -(2.0**23)]
    assert result[1:3].tolist() == [[0.0, 0.0], [2.0**16, -(2.0**15)]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("less", [0.0, 1.0])
def test_product_sums_are_within_the_reported_bound(shape: tuple[int, int], less: float) -> None:
    """If ``less`` is 1, nearly the whole sum is subtracted, and the remainder must have digits beyond those of
    the sum.
    """
    rng, cut = np.random.default_rng(1), Grid.for_sums_of(max(shape))
    matrix, vector = made(rng, *shape), made(rng, shape[1])
    products = cut.cut(matrix.high, matrix.low) @ cut.cut(vector.high, vector.low).T
    off = matrix.high @ vector.high * less
    result = cut.sum_products(products, less=off) if less else cut.sum_products(products)
    entries, numbers = exactly(matrix), exactly(vector)
    assert result.error == cut.error < 2.0**-90
    for j, x in enumerate(exactly(result)):
        row = entries[j * shape[1] : (j + 1) * shape[1]]
        expected = sum((a * b for a, b in zip(row, numbers, strict=True)), fmpq(0)) - rational(off[j])
        assert abs(x - expected) <= rational(result.error)
        if less:
            assert abs(x) < rational(2.0**-40)
    assert (two_sum(result.high, result.low)[0] == result.high).all()


def test_the_error_bound_of_a_sum_of_products_is_that_computed_by_hand() -> None:
    """Five slices of 23 bits leave out 6 products and 4 remainders of 2^−115 each; the bound has room for 15
    roundings.
    """
    assert Grid.for_sums_of(100) == Grid(100, 23, 5)
    assert Grid.for_sums_of(100).error == pytest.approx(100 * (13 * 2.0**-115 + 2.0**-100), rel=1e-9, abs=0)
    assert Grid(3, 20, 2).error == pytest.approx(3 * 7 * 2.0**-40, rel=1e-9, abs=0)
    assert Grid(100, 23, 5).error > 100 * 15 * 2.0**-105


def test_the_error_of_a_rounded_product_is_reported() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 1000)) * 2.0 ** rng.integers(-40, 40, size=(2, 1000))
    total, lost = two_sum(a, b)
    assert (total == a + b).all()
    assert all(
        rational(x) + rational(y) == rational(s) + rational(e) for x, y, s, e in zip(a, b, total, lost, strict=True)
    )


def test_round_within_returns_a_float_only_if_the_whole_interval_rounds_to_it() -> None:
    """The number 1 plus half a spacing is halfway between two floats; a tenth of a spacing more or less decides."""
    one, half = np.array([1.0]), 2.0**-53
    assert Twice(one, np.array([half * 0.9])).round_within(half * 0.05) == [1.0]
    assert Twice(one, np.array([half * 1.1])).round_within(half * 0.05) == [1.0 + 2 * half]
    assert Twice(one, np.array([half * 0.9])).round_within(half * 0.2) is None
    assert Twice(one, np.array([half])).round_within(0.0) is None
    assert Twice(one, np.array([half * 0.9])).round_within(np.array([half * 0.1])) is None
    assert Twice(np.array([np.nan]), np.zeros(1)).round_within(0.0) is None


def test_the_safety_margin_of_round_within_counts() -> None:
    """Without the safety margin for the rounding of the sums at its two ends, the interval ends exactly halfway between
    two floats.
    """
    near = Twice(np.array([1.0]), np.array([2.0**-53 * 0.75]))
    assert near.round_within(2.0**-55) is None
    assert near.round_within(2.0**-55 * (1 - 2.0**-40)) is None
    assert near.round_within(2.0**-55 * (1 - 2.0**-35)) == [1.0]


def test_scaling_by_a_power_of_two_is_exact() -> None:
    result = Twice(np.array([3.0, -1.0]), np.array([2.0**-60, 0.0]), 5.0).times(-2)
    assert (result.high.tolist(), result.low.tolist(), result.error) == ([0.75, -0.25], [2.0**-62, 0.0], 1.25)
    assert Twice(result.high, result.low).error == 0.0
