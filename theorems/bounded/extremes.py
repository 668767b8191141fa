"""Maxima and minima, which are not rounded; it need not be certain which operand is the largest.

For operands x ± e, let v = max x. The exact maximum is at most max (x + e), and at least v − e with the error e of the
largest operand. So v is off by at most max (e − (v − x)): an operand far below v does not contribute its error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_attention.floats import EPS
from theorems.bounded.array import (
    Bounded,
    Values,
    for_function,
    for_ufunc,
    from_trusted,
    parts,
    restore_invariants,
)
from theorems.bounded.elementary_operations import negative


def _excess(value: Values, x: Values, e: Values) -> Values:
    """Return e − (v − x) for v = ``value`` (see the module), with v − x rounded down; infinite where e is infinite."""
    below = np.where(x == value, 0.0, (value - x) * (1 - 2 * EPS))
    return np.where(np.isinf(e), np.inf, np.maximum(e - below, 0.0) * (1 + 2 * EPS))


@for_ufunc(np.maximum)
def maximum(a: Any, b: Any) -> Bounded:
    """Return the entrywise maximum of a and b."""
    (x, e), (y, f) = parts(a), parts(b)
    value = np.maximum(x, y)
    error = np.maximum(_excess(value, x, e), _excess(value, y, f))
    return restore_invariants(value, error, lambda: np.isfinite(error))


@for_ufunc(np.minimum)
def minimum(a: Any, b: Any) -> Bounded:
    """Return the entrywise minimum of a and b."""
    return negative(maximum(negative(a), negative(b)))


@for_function(np.max)
def max_(a: Any, axis: Any = None, keepdims: bool = False) -> Bounded:
    """Return the largest entry along the axes, or of all entries."""
    x, e = parts(a)
    value = np.max(x, axis=axis, keepdims=True)
    error = np.max(_excess(value, x, e), axis=axis, keepdims=True)
    result = restore_invariants(value, error, lambda: np.isfinite(error))
    if keepdims:
        return result
    axes = tuple(range(x.ndim)) if axis is None else axis
    return from_trusted(np.squeeze(result.value, axes), np.squeeze(result.error, axes))


@for_function(np.min)
def min_(a: Any, axis: Any = None, keepdims: bool = False) -> Bounded:
    """Return the smallest entry along the axes, or of all entries."""
    return negative(max_(negative(a), axis, keepdims))


@for_ufunc(np.maximum, "reduce")
def maximum_reduce(a: Any, axis: Any = 0, keepdims: bool = False) -> Bounded:
    """Return the largest entry along the axes, by default the first, as ``np.maximum.reduce`` does."""
    return max_(a, axis, keepdims)


@for_ufunc(np.minimum, "reduce")
def minimum_reduce(a: Any, axis: Any = 0, keepdims: bool = False) -> Bounded:
    """Return the smallest entry along the axes, by default the first, as ``np.minimum.reduce`` does."""
    return min_(a, axis, keepdims)


@for_function(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Bounded:
    """Return min(max(a, low), high), where low and high are the limits that are given."""
    low, high = a_min if min is None else min, a_max if max is None else max
    result = a if low is None else maximum(a, low)
    result = result if high is None else minimum(result, high)
    return result if isinstance(result, Bounded) else Bounded(result)
