"""Exponentials, logarithms, the square root, tanh and arctan, of a = x ± e.

The error of a result has two parts. The operand's error e changes the function by at most m, its largest change over x
± e, computed in closed form. The function itself is computed with the relative error ``Arithmetic.function``, and with
the absolute error ``vanishing`` where an exponential underflows. Where x ± e reaches beyond the function's domain, the
error is infinite: nothing is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded.arithmetic import UNIT, current
from theorems.bounded.array import Bounded, Values, for_ufunc, parts, restore_invariants, upward

SLACK = 1 + 2.0**-36
"""A factor for exponentials within a bound: it covers their own error, and that of rounding an exponent, which is at
most 745 in absolute value."""


def rise(x: Values, e: Values, power: Values) -> Values:
    """Return an upper bound of e^{x + e} − e^x ≥ e^x − e^{x − e}; ``power``, the computed e^x, may underflow."""
    # For e > 1, e^{x + e} is computed as one exponential, because e^x may underflow although e^x times e^e does not.
    near = (power + current().vanishing) * np.expm1(np.minimum(e, 1.0)) * SLACK
    if (e <= 1).all():
        return near
    far = np.exp(np.nextafter(x + e, np.inf)) + current().vanishing
    return np.where(e <= 1, near, far * SLACK)


@for_ufunc(np.exp)
def exp(a: Any) -> Bounded:
    """Return e^a, which is exactly 0 for an exact −∞."""
    x, e = parts(a)
    value, now = np.exp(x), current()
    moved, lost = rise(x, e, value), (x > -np.inf) * now.vanishing
    return restore_invariants(value, upward(moved + now.function * (value + moved)) + lost, lambda: np.isposinf(x))


@for_ufunc(np.expm1)
def expm1(a: Any) -> Bounded:
    """Return e^a − 1 for a = x ± e, which e changes as much as e^a; the function's own error is relative to e^x − 1."""
    x, e = parts(a)
    value, moved, now = np.expm1(x), rise(x, e, np.exp(x)), current()
    lost = (x != 0) * now.underflow + (e > 0) * now.vanishing
    error = upward(moved + now.function * (np.abs(value) + moved)) + lost
    return restore_invariants(value, error, lambda: np.isposinf(x))


def fall(e: Values, above: Values) -> Values:
    """Return −log(1 − e/above), the amount by which log(above) decreases when ``above`` decreases by e.

    The result is infinite where e ≥ ``above``, since log 0 = −∞.
    """
    share = e / above * (1 + 8 * UNIT) + current().underflow * (e > 0)
    if (above > 0).all() and (share < 1).all():
        return -np.log1p(-share) * SLACK
    moved = np.where(share < 1, -np.log1p(-np.minimum(share, 1.0)), np.inf) * SLACK
    return np.where((e == 0) & (above > 0), 0.0, np.where(above > 0, moved, np.inf))


@for_ufunc(np.log)
def log(a: Any) -> Bounded:
    """Return log a for a = x ± e, which e changes by at most −log(1 − e/x); exactly −∞ for an exact 0."""
    x, e = parts(a)
    value, moved, now = np.log(x), fall(e, x), current()
    error = upward(moved + now.function * (np.abs(value) + moved))
    return restore_invariants(value, error, lambda: ((x == 0) | np.isposinf(x)) & (e == 0))


@for_ufunc(np.log1p)
def log1p(a: Any) -> Bounded:
    """Return log(1 + a) for a = x ± e, which e changes by at most −log(1 − e/(1 + x)); 1 + x has one rounding."""
    x, e = parts(a)
    value, moved, now = np.log1p(x), fall(e, 1 + x), current()
    lost = ((x != 0) | (e > 0)) * now.underflow
    error = upward(moved + now.function * (np.abs(value) + moved)) + lost
    return restore_invariants(value, error, lambda: ((x == -1) | np.isposinf(x)) & (e == 0))


@for_ufunc(np.sqrt)
def sqrt(a: Any) -> Bounded:
    """Return √a for a = x ± e, which e changes by at most e/(√x + √(x − e)); the root is rounded correctly."""
    x, e = parts(a)
    value, now = np.sqrt(x), current()
    below = x - e
    moved = np.where(e == 0, 0.0, e / (value + np.sqrt(np.maximum(below * (1 - 2 * UNIT), 0.0))))
    moved = np.where(below >= 0, moved + now.underflow * (e > 0), np.inf)
    error = upward(moved + now.rounding * (value + moved)) + np.where(x > 0, now.flushed, 0.0)
    return restore_invariants(value, error, lambda: np.isposinf(x) & (e == 0))


@for_ufunc(np.logaddexp)
def logaddexp(a: Any, b: Any) -> Bounded:
    """Return log(e^a + e^b) as max(a, b) + log1p(e^{−|a − b|}); a kernel is assumed to use the same formula.

    For a = x ± e and b = y ± f, with w = 1/(1 + e^{y − x}), the errors raise the result by at most log(w e^e + (1 − w)
    e^f) ≤ max(e, f) and, by Jensen's inequality, lower it by less. The formula's own roundings are those of the
    exponent and of log1p, relative to the second term, which is at most log 2, and one rounding of the sum.
    """
    (x, e), (y, f) = parts(a), parts(b)
    now = current()
    top, low = np.maximum(x, y), np.minimum(x, y)
    alone = np.isneginf(low)
    gap = np.where(top == low, 0.0, top - low)
    small = np.exp(-gap)
    second = np.log1p(small)
    value = np.where(alone, top, top + second)

    first = x >= y
    e_top, e_low = np.where(first, e, f), np.where(first, f, e)
    raised = np.expm1(e_top) / (1 + small) + (small + now.vanishing) / (1 + small) * np.expm1(e_low)
    moved = np.fmin(np.log1p(raised) * SLACK, np.maximum(e, f))
    # A kernel computes z = e^{−|x − y|} from its own operands, which may make z larger by a factor c ≥ 1. The
    # inequality log1p(c z) ≤ c log1p(z) covers this, and |z log z| < 0.4 bounds the effect of rounding the
    # exponent.
    shift = e + f
    theirs = (second + now.vanishing) * np.exp(np.minimum(shift + now.rounding * gap, 700.0))
    theirs = np.where(shift < 700, np.minimum(theirs, 0.7), 0.7)
    exponent = now.rounding * np.fmin(theirs * (gap + shift), 0.4)
    rounding = 2 * now.function * theirs + 2 * exponent + now.vanishing
    rounding = rounding * SLACK + now.rounding * (np.abs(value) + moved) + now.flushed
    error = np.where(alone, e_top, moved + rounding)
    return restore_invariants(value, upward(error), lambda: np.isfinite(e) & np.isfinite(f))


@for_ufunc(np.tanh)
def tanh(a: Any) -> Bounded:
    """Return tanh a for a = x ± e, which e changes by at most min(e (1 − tanh² y), 2), y nearest to 0 in x ± e."""
    x, e = parts(a)
    value, now = np.tanh(x), current()
    t = np.tanh(np.maximum(np.abs(x) - e, 0.0))
    moved = np.minimum(e * ((1 - t) * (1 + t) + 32 * UNIT), 2.0)
    error = upward(moved + now.function * (np.abs(value) + moved)) + now.underflow * ((x != 0) | (e > 0))
    return restore_invariants(value, np.where(np.isinf(e), np.inf, error))


@for_ufunc(np.arctan)
def arctan(a: Any) -> Bounded:
    """Return arctan a for a = x ± e, which e changes by at most min(e/(1 + y²), π), y nearest to 0 in x ± e."""
    x, e = parts(a)
    value, now = np.arctan(x), current()
    y = np.maximum(np.abs(x) - e, 0.0) * (1 - 4 * UNIT)
    moved = np.minimum(e / (1 + y * y), 3.15)
    error = upward(moved + now.function * (np.abs(value) + moved)) + now.underflow * ((x != 0) | (e > 0))
    return restore_invariants(value, np.where(np.isinf(e), np.inf, error))
