"""Sums, running sums, means, and logarithms of sums of exponentials.

A sum of m terms that are not exactly 0, added in any order, has an error of at most (m − 1) u Σ|terms|, u the unit
roundoff: C.-P. Jeannerod, S. Rump, *Improved error bounds for inner products in floating-point arithmetic*, SIAM J.
Matrix Anal. Appl. 34 (2013). (Higham, Section 4.2, has the bound with an additional term in u².)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_attention.floats import EPS
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
from theorems.bounded.elementary_operations import divide
from theorems.bounded.exponentials import SLACK, rise


def terms_along(shape: tuple[int, ...], axis: Any) -> int:
    """Return the number of entries that a sum along the axes adds up for each result."""
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([shape[k] for k in axes], initial=1))


@for_function(np.sum)
def sum_(a: Any, axis: Any = None, keepdims: bool = False) -> Bounded:
    """Return the sum of x ± e along the axes; its error is Σ e plus the bound of the module for terms |x| + e."""
    x, e = parts(a)
    along = {"axis": axis, "keepdims": keepdims}
    now, n = current(), terms_along(x.shape, axis)
    sizes = np.abs(x) + e
    value, moved, total = np.sum(x, **along), np.sum(e, **along), np.sum(sizes, **along)
    additions = n - 1 if sizes.all() else np.maximum(np.count_nonzero(sizes, **along) - 1, 0)
    error = upward(moved + additions * (now.rounding * total + now.flushed), n + 8)
    # Partial sums of the absolute values are at most ``total``, so a partial sum can overflow only if ``total`` does.
    error = np.where(upward(total, n + 8) + error > now.largest, np.inf, error)
    return restore_invariants(value, error, lambda: np.isfinite(moved) & np.any(np.isinf(x), **along))


@for_ufunc(np.add, "reduce")
def add_reduce(a: Any, axis: Any = 0, keepdims: bool = False) -> Bounded:
    """Return the sum along the axes, by default the first, as ``np.add.reduce`` does."""
    return sum_(a, axis, keepdims)


@for_function(np.mean)
def mean(a: Any, axis: Any = None, keepdims: bool = False) -> Bounded:
    """Return the sum divided by the number n of terms; the error covers a kernel that multiplies by a rounded 1/n."""
    x, _ = parts(a)
    result = divide(sum_(a, axis, keepdims), float(terms_along(x.shape, axis)))
    extra = current().theirs * (np.abs(result.value) + result.error)
    return restore_invariants(result.value, upward(result.error + extra), lambda: np.isinf(result.value))


@for_function(np.cumsum)
def cumsum(a: Any, axis: int | None = None) -> Bounded:
    """Return running sums, each with the error of a sum; without an axis the array is flattened, as by NumPy."""
    x, e = parts(a)
    if axis is None:
        x, e, axis = x.ravel(), np.broadcast_to(e, x.shape).ravel(), 0
    now, n = current(), x.shape[axis]
    sizes = np.abs(x) + e
    value, moved, total = (np.cumsum(part, axis=axis) for part in (x, e, sizes))
    additions = np.maximum(np.cumsum(sizes > 0, axis=axis) - 1, 0)
    error = upward(moved + additions * (now.rounding * total + now.flushed), n + 8)
    error = np.where(upward(total, n + 8) + error > now.largest, np.inf, error)
    return restore_invariants(
        value, error, lambda: np.isfinite(moved) & np.logical_or.accumulate(np.isinf(x), axis=axis)
    )


@for_ufunc(np.add, "accumulate")
def add_accumulate(a: Any, axis: int = 0) -> Bounded:
    """Return running sums along an axis, by default the first, as ``np.add.accumulate`` does."""
    return cumsum(a, axis)


@for_ufunc(np.logaddexp, "reduce")
def logsumexp(a: Any, axis: int = 0, keepdims: bool = False) -> Bounded:
    """Return log Σ e^x, computed as M + log1p(Σ' e^{x − M}), M being the largest x and Σ' the sum over the other x.

    Let the m entries be x ± e. The errors raise the result by at most log(Σ w e^e), with w the softmax weights, and by
    Jensen's inequality lower it by less. This bound is at most max e, and at most max (x + e) − M + log m, so a term
    far below M does not contribute its error. The formula's own roundings are those of the exponents x − M, of the
    exponentials (in proportion to their weights), of the sum and of the logarithm, all relative to Σ', and of adding M,
    which is exact if M is 0. A single entry is returned as it is.

    A kernel that subtracts its maximum and adds all m terms in any order computes a sum S ≥ 1 with the relative error m
    u, u the kernel's unit roundoff, plus the errors of exponents and exponentials. The errors of exponents add up to at
    most u/(1 − u) log m, as Σ w (M − x) ≤ log m for any x (Gibbs). It also rounds log S ≤ log m and, last, the sum M +
    log S. A kernel that combines terms pairwise by logaddexp is not covered.
    """
    x, e = parts(a)
    along: dict[str, Any] = {"axis": axis, "keepdims": True}
    now, float64 = current(), FLOAT64
    m = np.count_nonzero(~np.isneginf(x), **along)
    largest = np.argmax(x, **along)
    top = np.take_along_axis(x, largest, axis=axis)
    shifted = x - np.where(np.isfinite(top), top, 0.0)
    terms = np.exp(shifted)
    others = np.array(terms)
    np.put_along_axis(others, largest, 0.0, axis=axis)
    rest = np.sum(others, **along)
    beyond = np.log1p(rest)
    value = top + beyond

    most = np.max(e, **along)
    # x − M is rounded towards 0, so that the exponent near + e is not too small where e is large.
    near = shifted * (1 - 2 * EPS)
    raised = np.sum(rise(near, e, terms), **along) / (1 + rest)
    furthest = np.max(near + e, **along) + np.log(m)
    moved = np.fmin(np.fmin(np.log1p(upward(raised, m)), furthest) * SLACK, most)
    exponents = np.sum(others * np.abs(np.where(others > 0, shifted, 0.0)), **along)
    lost = float64.rounding * (exponents + m * rest) + float64.function * rest + m * float64.vanishing
    error = moved + lost / (1 + rest) * SLACK + float64.function * beyond
    error = error + np.where(top == 0, 0.0, float64.rounding * np.abs(value))
    if now.theirs:
        error = error + _of_kernel(m, np.abs(value) + error)
    result = restore_invariants(
        value, upward(np.where(m > 1, error, most), m) * SLACK, lambda: np.isfinite(most) & ~np.isnan(value)
    )
    return result if keepdims else from_trusted(np.squeeze(result.value, axis), np.squeeze(result.error, axis))


def _of_kernel(m: Values, size: Values) -> Values:
    """Return what a kernel's own log Σ e^x of m terms adds to the error; ``size`` is an upper bound of |log Σ e^x|."""
    now = current()
    function, logs = now.function - FLOAT64.function, np.log(np.maximum(m, 1))
    relative = now.theirs * (m + logs / (1 - now.theirs)) + function + m * now.vanishing
    of_sum = np.where(relative < 1, -np.log1p(-np.minimum(relative, 1.0)), np.inf)
    return of_sum + function * (logs + of_sum) + now.theirs * size + now.flushed
