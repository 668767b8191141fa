"""Conversions between floats and rationals: exact from float to rational, one rounding from rational to float."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq, fmpz
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from reference_attention.errors import InvalidInput
from reference_attention.exact import (
    Dyadic,
    combination,
    from_limbs,
    products,
    rank_of,
    ratio,
    rational,
    rational_matrix,
    rounded_product,
    times_power_of_two,
    to_float,
    to_floats,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e140, 1e140).filter(lambda x: x == 0 or abs(x) >= 1e-140)


def fraction(q: fmpq) -> Fraction:
    return Fraction(int(q.p), int(q.q))


@given(finite)
@example(5e-324)
@example(-0.0)
def test_a_float_survives_the_round_trip(x: float) -> None:
    assert fraction(rational(x)) == Fraction(x)
    assert to_float(rational(x)) == x


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_as_rationals(x: float) -> None:
    with pytest.raises(InvalidInput, match="NaN and infinite"):
        rational(x)
    with pytest.raises(InvalidInput, match="NaN and infinite"):
        Dyadic.of(np.array([1.0, x]))


@given(st.integers(-(10**40), 10**40), st.integers(1, 10**40), st.integers(-900, 900))
@example(-3, 5, -2)
@example(-3, 5, -1)
@example(-3, 5, 0)
@example(-3, 5, 1)
@example(-3, 5, 2)
def test_ratios_are_rounded_once(a: int, b: int, exponent: int) -> None:
    exact = Fraction(a, b) * Fraction(2) ** exponent
    assert ratio(fmpz(a), fmpz(b), exponent) == float(exact)
    assert fraction(times_power_of_two(fmpq(a, b), exponent)) == exact


def test_a_ratio_next_to_a_midpoint_of_two_floats_is_rounded_once() -> None:
    """The ratio is (2⁵³ + 1)/2⁵³ plus a tiny number: dropping the tiny number, then rounding to even, would give 1."""
    assert to_float(fmpq(2**200 + 2**147 + 1, 2**200)) == 1.0 + 2.0**-52
    assert to_float(fmpq(2**200 + 2**147, 2**200)) == 1.0


def test_ratios_beyond_float64_become_infinite_or_zero_and_are_refused_by_to_float() -> None:
    huge = fmpz(1) << 1100
    assert ratio(huge, fmpz(1)) == np.inf
    assert ratio(-huge, fmpz(1)) == -np.inf
    assert [ratio(fmpz(sign), fmpz(3), 2000) for sign in (1, -1)] == [np.inf, -np.inf]
    assert ratio(fmpz(1), huge) == 0.0
    with pytest.raises(InvalidInput, match="rescale"):
        to_float(fmpq(huge))
    with pytest.raises(InvalidInput, match="rescale"):
        to_floats([fmpq(1), fmpq(-huge)])


@given(arrays(np.float64, array_shapes(max_dims=3, max_side=4), elements=finite))
def test_dyadic_form_is_exact_and_has_the_largest_unit(array: np.ndarray) -> None:
    form = Dyadic.of(array)
    integers = form.integers()
    unit = Fraction(2) ** form.exponent
    assert [k * unit for k in integers] == [Fraction(x) for x in array.ravel().tolist()]
    assert not array.any() or any(k % 2 for k in integers)


def test_rational_matrix_keeps_entries_and_shape() -> None:
    rows = np.array([[0.1, -3.0, 0.0], [1e-300, 1e300, 2.0**-1074]])
    matrix = rational_matrix(rows)
    assert (matrix.nrows(), matrix.ncols()) == (2, 3)
    assert [fraction(x) for x in matrix.entries()] == [Fraction(x) for x in rows.ravel().tolist()]


@st.composite
def factors(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    m, k, l = (draw(st.integers(1, 4)) for _ in range(3))
    return draw(arrays(np.float64, (m, k), elements=moderate)), draw(arrays(np.float64, (k, l), elements=moderate))


@given(factors())
@example((np.array([[8.0, 16.0]]), np.array([[4.0], [2.0]])))
@example((np.array([[1e140, 1e-140]]), np.array([[1e140], [1e-140]])))
@example((np.array([[1e100, 1.0, -1e100]]), np.array([[1.0], [1.0], [1.0]])))
@example((np.array([[0.1, 0.2, 0.3], [0.3, 0.1, 0.2], [0.2, 0.3, 0.1]]), np.ones((3, 1))))
@example(
    (np.outer(10.0 ** np.arange(-100, 80, 36), np.arange(0.1, 7)), np.outer(0.3 + np.arange(7), [1e-40, -1.0, 1e39]))
)
def test_products_are_rounded_once(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    product = rounded_product(a, b)
    assert product.shape == (a.shape[0], b.shape[1])
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.T.tolist()):
            exact = sum((Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)), Fraction(0))
            assert product[i, j] == float(exact)


def test_products_do_not_depend_on_the_order_of_summation() -> None:
    """Floating-point sums do depend on the order, which is why exact products are needed."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(1, 200)), rng.normal(size=(200, 1))
    orders = [rng.permutation(200) for _ in range(20)]
    assert len({float(rounded_product(a[:, order], b[order])[0, 0]) for order in orders}) == 1
    assert len({float(np.cumsum(a[0, order] * b[order, 0])[-1]) for order in orders}) > 1


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e-160])
def test_products_beyond_the_normal_range_are_refused(size: float) -> None:
    with pytest.raises(InvalidInput, match="rescale"):
        rounded_product(np.array([[size]]), np.array([[size]]))


def test_a_product_that_is_exactly_zero_is_not_refused_as_underflow() -> None:
    a = np.array([[1e-200, -1e-200]])
    assert rounded_product(a, np.array([[1e-200], [1e-200]])).tolist() == [[0.0]]


def test_a_product_is_kept_at_the_smallest_normal_number_and_refused_at_half_of_it() -> None:
    a, b = np.array([[2.0**-511]]), np.array([[2.0**-511]])
    assert rounded_product(a, b).tolist() == [[2.0**-1022]]
    with pytest.raises(InvalidInput, match="normal range"):
        rounded_product(a, b / 2)


@given(arrays(np.float64, array_shapes(max_dims=2, max_side=3), elements=finite))
def test_mantissas_are_odd_and_the_exponent_is_the_largest(array: np.ndarray) -> None:
    result = Dyadic.of(array)
    zero = array == 0
    assert (result.mantissas[zero] == 0).all()
    assert (result.mantissas[~zero] % 2 == 1).all()
    assert result.shifts[~zero].min(initial=0) == 0
    if zero.all():
        assert result.exponent == 0
    assert (result.shifts >= 0).all()


def test_limbs_of_integers_add_up_to_the_integers() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 4)) * 2.0 ** rng.integers(-120, 120, size=(3, 4))
    values[0, 0], values[1, 1], values[2, 2] = 0.0, -(2.0**130), 2.0**-180
    dyadic = Dyadic.of(values)
    limbs = dyadic.limbs()
    assert np.abs(limbs).max() < 2**53
    assert from_limbs(limbs).entries() == [fmpz(x) for x in dyadic.integers()]
    assert from_limbs(Dyadic.of(np.zeros((1, 2))).limbs()).entries() == [0, 0]


def test_products_and_combinations_of_vectors_are_exact_sums() -> None:
    rows = [[fmpq(1, 3), fmpq(-2)], [fmpq(5), fmpq(1, 7)], [fmpq(0), fmpq(1)]]
    p = [fmpq(3, 2), fmpq(7)]
    assert products(rows, p) == [fmpq(-27, 2), fmpq(17, 2), fmpq(7)]
    assert combination(rows, [fmpq(3), fmpq(1, 5), fmpq(-1)], 2) == [fmpq(2), fmpq(-244, 35)]
    assert products([], p) == []
    assert combination([], [], 2) == [fmpq(0), fmpq(0)]


def test_the_rank_is_that_over_the_rationals() -> None:
    prime = 2**61 - 1
    assert rank_of([]) == 0
    assert rank_of([[fmpq(1, 3), fmpq(2)], [fmpq(1, 6), fmpq(1)]]) == 1
    assert rank_of([[fmpq(1, 3), fmpq(2)], [fmpq(1, 6), fmpq(2)]]) == 2
    # The matrix has full rank over the rationals, but not modulo the prime.
    assert rank_of([[fmpq(1), fmpq(0)], [fmpq(0), fmpq(prime)]]) == 2
    assert rank_of([[fmpq(prime)]]) == 1
    assert rank_of([[fmpq(11), fmpq(1)], [fmpq(0), fmpq(11)]]) == 2
