"""Sums, products, quotients and signs, entry by entry.

The operands are a = x ± e and b = y ± f, and u is the error of one rounding in the arithmetic of
:func:`.arithmetic.current`. If the errors e and f change the exact result by at most m, a result of value v has the
error m + u (|v| + m) plus the loss by underflow. The docstrings of the rules give m.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from theorems.bounded.arithmetic import UNIT, current
from theorems.bounded.array import Bounded, Values, for_ufunc, from_trusted, parts, restore_invariants, upward


def is_exact_zero(x: Values, e: Values) -> Values:
    """Return the mask of exact zeros, whose products are exactly 0 and whose addition causes no rounding error."""
    return (x == 0) & (e == 0)


@for_ufunc(np.add)
def add(a: Any, b: Any) -> Bounded:
    """Return a + b for a = x ± e, b = y ± f; e and f change it by at most e + f. Two-sum (Knuth) gives the rounding."""
    return _sum(*parts(a), *parts(b))


def _sum(x: Values, e: Values, y: Values, f: Values) -> Bounded:
    value, moved = x + y, e + f
    part = value - x
    rounding = np.abs((x - (value - part)) + (y - part))
    error = moved + rounding
    now = current()
    if now.theirs:
        cost = now.theirs * (np.abs(value) + error) + now.flushed
        error = error + np.where(is_exact_zero(x, e) | is_exact_zero(y, f), 0.0, cost)
    return restore_invariants(value, upward(error), lambda: (np.isinf(x) | np.isinf(y)) & np.isfinite(moved))


@for_ufunc(np.subtract)
def subtract(a: Any, b: Any) -> Bounded:
    """Return a − b, computed as a + (−b)."""
    y, f = parts(b)
    return _sum(*parts(a), -y, f)


@for_ufunc(np.multiply)
def multiply(a: Any, b: Any) -> Bounded:
    """Return a b for a = x ± e, b = y ± f; e and f change it by at most m = |x| f + |y| e + e f."""
    (x, e), (y, f) = parts(a), parts(b)
    value, now = x * y, current()
    size_x, size_y = np.abs(x), np.abs(y)
    reach = size_y + f
    moved = size_x * f + e * reach
    lost = (np.minimum(size_x + e, reach) > 0) * now.underflow
    error = upward(moved + now.rounding * (np.abs(value) + moved)) + lost
    return restore_invariants(
        value, error, lambda: np.isfinite(e + f) & ((np.isinf(x) & (size_y > f)) | (np.isinf(y) & (size_x > e)))
    )


@for_ufunc(np.divide)
def divide(a: Any, b: Any) -> Bounded:
    """Return a/b for a = x ± e, b = y ± f, changed by at most (e + |x/y| f)/(|y| − f); unknown if y ± f contains 0."""
    (x, e), (y, f) = parts(a), parts(b)
    value, now = x / y, current()
    # Even where |y| and f nearly cancel, the error of the float64 difference is only that of one rounding.
    room = (np.abs(y) - f) * (1 - 2 * UNIT)
    scale = np.abs(value) + now.underflow * (f > 0)
    # f/room is computed before the product: |x/y| f may underflow, although after division by a small ``room`` it
    # matters.
    moved = e / room + scale * (f / room)
    if (room > 0).all() and np.isfinite(scale).all() and np.isfinite(y).all():
        lost = (np.abs(x) + e > 0) * now.underflow
        return restore_invariants(value, upward(moved + now.rounding * (scale + moved)) + lost)
    moved = np.where(room > 0, moved, np.inf)
    vanishes = is_exact_zero(x, e) | (np.isinf(y) & np.isfinite(e))
    moved = np.where(vanishes & (room > 0) & np.isfinite(x), 0.0, moved)
    lost = np.where(vanishes, 0.0, now.underflow)
    error = upward(moved + now.rounding * (np.abs(value) + moved)) + lost
    return restore_invariants(value, error, lambda: np.isinf(x) & np.isfinite(y) & (room > 0))


@for_ufunc(np.negative)
def negative(a: Any) -> Bounded:
    """Return −a, exactly."""
    x, e = parts(a)
    return from_trusted(-x, e if e.shape == np.shape(x) else np.broadcast_to(e, np.shape(x)))


@for_ufunc(np.positive)
def positive(a: Any) -> Bounded:
    """Return the operand unchanged."""
    return from_trusted(*parts(a))


@for_ufunc(np.absolute)
def absolute(a: Any) -> Bounded:
    """Return |a|, exactly; the error does not grow, as ||t| − |x|| ≤ |t − x| for every number t."""
    x, e = parts(a)
    return from_trusted(np.abs(x), e)


@for_ufunc(np.sign)
def sign(a: Any) -> Bounded:
    """Return the sign: exact where it is certain, 0 ± 1 where it is not, and unknown where the error is infinite."""
    x, e = parts(a)
    sure = (np.abs(x) > e) | is_exact_zero(x, e)
    return from_trusted(np.where(sure, np.sign(x), 0.0), np.where(sure, 0.0, np.where(np.isinf(e), np.inf, 1.0)))


@for_ufunc(np.square)
def square(a: Any) -> Bounded:
    """Return a · a."""
    return multiply(a, a)


@for_ufunc(np.power)
def power(a: Any, exponent: Any) -> Bounded:
    """Return a to an integer power, by repeated multiplication; a negative power is 1 over the positive power."""
    if isinstance(exponent, Bounded):
        raise TypeError("numpy.power: only whole exponents have a rule for bounded arrays.")
    try:
        k = operator.index(exponent.item() if isinstance(exponent, np.ndarray) else exponent)
    except (TypeError, ValueError):
        raise TypeError("numpy.power: only whole exponents have a rule for bounded arrays.") from None
    result, base, exponent_bits = None, from_trusted(*parts(a)), abs(k)
    while exponent_bits:
        if exponent_bits & 1:
            result = base if result is None else multiply(result, base)
        exponent_bits >>= 1
        if exponent_bits:
            base = multiply(base, base)
    if result is None:
        return Bounded(np.ones(base.shape))
    return divide(1.0, result) if k < 0 else result


@for_ufunc(np.isfinite)
def isfinite(a: Any) -> Values:
    """Return the mask of entries that are certainly finite."""
    x, e = parts(a)
    return np.isfinite(x) & np.isfinite(e)
