"""Inner products and lengths.

An inner product with m terms x y that are not exactly 0, added up in any order, fused or not, has an error of at most m
u Σ|x y|, u the unit roundoff (Jeannerod and Rump, see :mod:`.sums`), plus m times the loss by underflow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from theorems.bounded.arithmetic import FLOAT64, current
from theorems.bounded.array import (
    Bounded,
    Values,
    for_function,
    for_ufunc,
    from_trusted,
    parts,
    restore_invariants,
    upward,
)
from theorems.bounded.elementary_operations import multiply
from theorems.bounded.sums import sum_, terms_along

Bilinear = Callable[[Values, Values], Values]


def bilinear(take: Bilinear, a: Any, b: Any, otherwise: Bilinear | None = None) -> Bounded:
    """Return sums of products x y, which ``take`` forms, for x ± e and y ± f.

    The errors e and f change a sum by at most Σ |x| f + e (|y| + f).

    Args:
        take: the bilinear function on plain arrays, such as ``np.matmul``.
        a: its first operand, x ± e.
        b: its second operand, y ± f.
        otherwise: a function that computes the result from a and b if a value or an error is not finite.
    """
    (x, e), (y, f) = parts(a), parts(b)
    now = current()
    size_x = np.abs(x)
    reach_x, reach_y = size_x + e, np.abs(y) + f
    value, total = take(x, y), take(reach_x, reach_y)
    if not np.isfinite(total).all():
        return _one_by_one(take, a, b) if otherwise is None else otherwise(a, b)
    products = take((reach_x > 0).astype(float), (reach_y > 0).astype(float))
    moved: Values = np.zeros(())
    if f.any():
        moved = moved + take(size_x, f)
    if e.any():
        moved = moved + take(e, reach_y)
    error = upward(moved + products * now.rounding * total, products) + products * (2 * now.underflow + now.flushed)
    error = np.where(upward(total, products) + error > now.largest, np.inf, error)
    return restore_invariants(value, error)


def _one_by_one(take: Bilinear, a: Any, b: Any) -> Bounded:
    """Apply ``take`` to operands with infinite entries or errors; sums with such entries get an infinite error."""
    (x, e), (y, f) = parts(a), parts(b)
    wild_x = ~np.isfinite(x + e)
    wild_y = ~np.isfinite(y + f)
    if not (wild_x.any() or wild_y.any()):  # the sum overflows
        value = take(x, y)
        return restore_invariants(value, np.full(value.shape, np.inf))
    tame = bilinear(
        take,
        from_trusted(np.where(wild_x, 0.0, x), np.where(wild_x, 0.0, e)),
        from_trusted(np.where(wild_y, 0.0, y), np.where(wild_y, 0.0, f)),
    )
    ones_x, ones_y = np.ones(np.shape(x)), np.ones(np.shape(y))
    hit = take(wild_x.astype(float), ones_y) + take(ones_x, wild_y.astype(float)) > 0
    return restore_invariants(tame.value, np.where(hit, np.inf, tame.error))


@for_ufunc(np.vecdot)
def vecdot(a: Any, b: Any) -> Bounded:
    """Return the inner products of a and b over the last axis; entries may be infinite."""
    return bilinear(np.vecdot, a, b, lambda a, b: sum_(multiply(a, b), -1))


# These rules hold for any BLAS, because they hold for any order in which products are added.
for_ufunc(np.matmul)(partial(bilinear, np.matmul))
for _take in (np.dot, np.inner, np.outer):
    for_function(_take)(partial(bilinear, _take))


@for_function(np.einsum)
def einsum(subscripts: str, *operands: Any) -> Bounded:
    """Return an einsum of two operands; with three, the order of the multiplications would be unknown."""
    if len(operands) != 2:
        raise TypeError("numpy.einsum: bounded arrays have a rule for two operands only; split the product.")
    return bilinear(lambda x, y: np.einsum(subscripts, x, y), *operands)


def _length(x: Values, axis: Any) -> Values:
    """Return √Σ x², with x scaled by a power of two where squares would overflow or underflow noticeably."""
    plain = np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    if ((plain > 1e-140) & (plain < 1e150)).all():
        return plain
    exponent = np.frexp(np.max(np.abs(x), axis=axis, keepdims=True))[1]
    scaled = np.ldexp(x, -exponent)
    return np.ldexp(np.sqrt(np.sum(scaled * scaled, axis=axis, keepdims=True)), exponent)


@for_function(np.linalg.norm)
def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Bounded:
    """Return the Euclidean length √Σ x² of x ± e over the axes.

    The errors e change the length by at most ‖e‖. The rounding of a sum of m squares changes the length by a relative
    (1 ± t)^{1/2} − 1 with t = m u, u the unit roundoff; this is at most t/2 + t²/2 in absolute value. A kernel does not
    scale the entries, so it loses squares below its range; this changes the length by up to √(m · smallest normal
    number).
    """
    if ord is not None:
        raise TypeError("numpy.linalg.norm: bounded arrays have a rule for ord=None, the Euclidean norm, only.")
    x, e = parts(a)
    e, now = np.broadcast_to(e, x.shape), current()
    axes = tuple(range(x.ndim)) if axis is None else axis
    n = terms_along(x.shape, axes)
    value, moved = _length(x, axes), upward(_length(e, axes), n + 8) + FLOAT64.underflow
    live = np.count_nonzero(np.abs(x) + e, axis=axes, keepdims=True)
    spread = live * now.rounding
    relative = (spread + spread * spread) / 2 + 2 * now.rounding
    lost = now.underflow + np.sqrt(live * (now.normal + now.flushed))
    error = upward(moved + relative * (value + moved)) + lost
    error = np.where(live > 0, error, 0.0)
    if now.theirs:
        size = upward(value + error)
        error = np.where(size * size > now.largest, np.inf, error)
    infinite = np.any(np.isinf(x), axis=axes, keepdims=True) & np.all(np.isfinite(e), axis=axes, keepdims=True)
    result = restore_invariants(np.where(infinite, np.inf, value), error, lambda: infinite)
    return result if keepdims else from_trusted(np.squeeze(result.value, axes), np.squeeze(result.error, axes))


@for_function(np.linalg.vector_norm)
def vector_norm(a: Any, *, axis: Any = None, keepdims: bool = False) -> Bounded:
    """Return the Euclidean length over the axes, as :func:`norm`."""
    return norm(a, axis=axis, keepdims=keepdims)
