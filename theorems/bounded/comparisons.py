"""Comparisons that are true only where they are certain: x ± e ≥ y ± f, for example, only if x − y ≥ e + f.

So ``~(a >= b)`` does not mean that a < b, but that a ≥ b is not certain; and ``np.where(a >= b, …, …)`` selects its
second branch where nothing is certain. For piecewise formulas use :func:`either`, or ``np.select`` in code that also
runs on plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from reference_attention.floats import EPS
from theorems.bounded.array import Bounded, Values, for_function, for_ufunc, parts, restore_invariants, upward


def _gap(a: Any, b: Any) -> tuple[Values, Values, Values]:
    """Return for a = x ± e and b = y ± f: x − y, rounded; e + f, rounded up; and the mask of e + f = 0."""
    (x, e), (y, f) = parts(a), parts(b)
    room = (e + f) * (1 + 8 * EPS)
    # Replaced by NaN, with which every comparison is false: infinite errors, and the difference of equal infinities.
    gap = np.where(np.isinf(room), np.nan, x - y)
    return gap, room, room == 0


def _surely(test: Callable[[Values, Values], Values], sign: int) -> Callable[[Any, Any], Values]:
    def compare(a: Any, b: Any) -> Values:
        gap, room, exact = _gap(a, b)
        return np.where(exact, test(sign * parts(a)[0], sign * parts(b)[0]), test(sign * gap, room))

    return compare


surely_at_least = for_ufunc(np.greater_equal)(_surely(np.greater_equal, 1))
surely_above = for_ufunc(np.greater)(_surely(np.greater, 1))
surely_at_most = for_ufunc(np.less_equal)(_surely(np.greater_equal, -1))
surely_below = for_ufunc(np.less)(_surely(np.greater, -1))


@for_ufunc(np.equal)
def surely_equal(a: Any, b: Any) -> Values:
    """Return the mask of entries where a = b is certain: both are exact, and the same number."""
    _, _, exact = _gap(a, b)
    return exact & (parts(a)[0] == parts(b)[0])


@for_ufunc(np.not_equal)
def surely_different(a: Any, b: Any) -> Values:
    """Return the mask of entries where a ≠ b is certain."""
    return surely_above(a, b) | surely_below(a, b)


def possibly_at_least(a: Any, b: Any) -> Values:
    """Return the mask of entries where a ≥ b is possible, because a < b is not certain."""
    with np.errstate(all="ignore"):
        return ~surely_below(a, b)


def hull(a: Any, b: Any) -> Bounded:
    """Return the smallest ball (value ± error) around a's value that contains both balls a and b."""
    with np.errstate(all="ignore"):
        (x, e), (y, f) = parts(a), parts(b)
        apart = np.where(x == y, 0.0, np.abs(x - y))
        return restore_invariants(
            np.where(True, x, y), upward(np.maximum(e, apart + f)), lambda: (x == y) & np.isfinite(e + f)
        )


def either(first: Any, second: Any, a: Any, b: Any) -> Bounded:
    """Return a where ``first`` is certain, b where ``second`` is certain, elsewhere value ± error that contains both.

    ``first`` and ``second`` are comparisons that exclude each other, such as x >= 0 and x < 0.
    """
    undecided = hull(a, b)
    (x, e), (y, f) = parts(a), parts(b)
    value = np.where(first, x, np.where(second, y, undecided.value))
    error = np.where(first, e, np.where(second, f, undecided.error))
    return restore_invariants(value, error, lambda: np.isfinite(error))


@for_function(np.select)
def select(condlist: Sequence[Values], choicelist: Sequence[Any]) -> Bounded:
    """Return the first choice whose comparison is certain; where none is, value ± error that contains all choices.

    The comparisons must cover all cases, as x < 0 and x >= 0 do: the result never contains NumPy's default, 0.
    """
    undecided = reduce(hull, choicelist)
    value, error = undecided.value, undecided.error
    for sure, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        x, e = parts(choice)
        value, error = np.where(sure, x, value), np.where(sure, e, error)
    return restore_invariants(value, error, lambda: np.isfinite(error))
