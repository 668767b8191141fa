"""Exact operands, zeros and infinities by hand: the random operands of the other tests are seldom zero or infinite."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from theorems.bounded import Bounded, exact, spacing
from theorems.bounded.arithmetic import of_kernel
from theorems.bounded.formats import FORMATS
from theorems.rounding.attention_at import power_of_two

SINGLE = 2.0**-23
ZEROS = exact(np.zeros(3))
each_arithmetic = pytest.mark.parametrize("eps", [None, 2.0**-52, SINGLE], ids=["none", "float64", "float32"])


def block(eps: float | None) -> Any:
    """Return the arithmetic of a kernel with the given spacing, or plain arithmetic for None."""
    return nullcontext() if eps is None else spacing(eps)


@each_arithmetic
@pytest.mark.parametrize(
    "function", [np.expm1, np.log1p, np.sqrt, np.tanh, np.arctan, np.sum, np.cumsum, np.linalg.norm]
)
def test_functions_that_vanish_at_zero_are_exact_there(eps: float | None, function: Callable[[Any], Any]) -> None:
    with block(eps):
        result = function(ZEROS)
    assert not result.value.any()
    assert not result.error.any()


@each_arithmetic
def test_a_dot_product_with_zeros_is_exactly_zero(eps: float | None) -> None:
    with block(eps):
        for found in (np.dot(exact(np.ones(3)), ZEROS), np.dot(ZEROS, Bounded(np.ones(3), np.full(3, 0.5)))):
            assert found.value == found.error == 0


@each_arithmetic
def test_a_sum_of_one_term_is_the_term(eps: float | None) -> None:
    with block(eps):
        assert np.cumsum(exact(np.array([0.1, 0.2]))).error[0] == 0
        assert np.sum(exact(np.array([0.1, 0.0, 0.0]))).error == 0


def test_only_exact_numbers_are_certainly_equal() -> None:
    three, none = exact(np.array([3.0])), exact(np.array([0.0]))
    assert (three == 3.0).all()
    assert not (three == none).any()
    assert not (none == three).any()
    assert not (Bounded(np.array([3.0]), np.array([1e-9])) == three).any()


def test_a_kernel_takes_the_logarithm_of_any_point_of_the_ball() -> None:
    """At ½, the lowest point of 1 ± ½, the kernel's logarithm errs by a share of log 2."""
    now = of_kernel(SINGLE, 4.0)
    with spacing(SINGLE, 4.0):
        result = np.log(Bounded(np.array([1.0]), np.array([0.5])))
    assert result.error[0] >= math.log(2) * (1 + now.function)


@pytest.mark.parametrize("size", [1.0, 2.0**24, 2.0**40])
def test_a_log_sum_exp_in_floats_is_in_the_ball(size: float) -> None:
    """At 2²⁴ the log 2 of two equal terms is less than a unit in the last place of the sum."""
    x = np.full(2, size)
    with spacing(SINGLE):
        result = np.logaddexp.reduce(exact(x))
    single = np.float32(size) + np.log(np.float32(2))
    assert abs(float(single) - result.value) <= result.error


@pytest.mark.parametrize("name", FORMATS)
def test_formats_agree_with_torch(name: str) -> None:
    known, result = torch.finfo(getattr(torch, name)), FORMATS[name]
    assert (result.eps, result.largest) == (known.eps, known.max)
    assert result.lost == (known.smallest_normal if name != "float16" else known.eps * known.smallest_normal / 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_spacing_determines_the_range(dtype: Any) -> None:
    known = np.finfo(dtype)
    result = of_kernel(float(known.eps), 1.0)
    assert result.largest == float(known.max)
    assert result.normal == result.flushed == float(known.smallest_normal)
    assert (result.theirs, result.rounding) == (known.eps / 2, known.eps / 2 + 2.0**-53)


def test_power_of_two_is_the_largest_below_the_largest_entry() -> None:
    for x, power in ((5.0, 4.0), (4.0, 4.0), (-0.3, 0.25), (0.0, 1.0)):
        assert power_of_two(np.array([[x, x / 8]])) == power


@pytest.mark.parametrize("x", [0.0, 1.0])
def test_a_quotient_by_a_ball_that_touches_zero_is_unknown(x: float) -> None:
    result = exact(np.array([x])) / Bounded(np.array([1.0]), np.array([1.0]))
    assert np.isposinf(result.error).all()
