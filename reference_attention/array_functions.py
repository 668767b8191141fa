"""Formulas with several branches, and truncated series, on NumPy arrays, torch tensors and arrays with error bounds.

An array that carries a bound of its rounding error (:class:`theorems.bounded.Bounded`) has a method ``widen``, by which
it is recognised. A comparison with such an array x is true only where it is certain. Where the error bound leaves open
on which side of a number an entry lies, both x < number and x ≥ number are false.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from reference_attention.loss import Array

_NUMPY = array_namespace(np.empty(0))
LARGEST_EXPONENT = 700.0
"""Largest exponent x for which e^x is computed in plain floats; larger exponents are replaced by it, so that e^x is
finite."""


def carries_rounding(x: Array) -> bool:
    """Return whether an array carries a bound of its rounding error."""
    return hasattr(x, "widen")


def namespace(*arrays: Array) -> Any:
    """Return the array namespace (NumPy, torch, …) of the first array with an error bound, or of the first array."""
    return namespace_of(next(filter(carries_rounding, arrays), arrays[0]))


def namespace_of(x: Array) -> Any:
    """Return the array namespace of x (NumPy, torch, …).

    The result equals ``array_namespace(x)``, with a shortcut for NumPy arrays, because a descent calls this function
    ten times per step.
    """
    return np if type(x) is np.ndarray else array_namespace(x)


def pieces(xp: Any, x: Array, bound: float, below: Array, above: Array) -> Array:
    """Return ``below`` where x < bound and ``above`` elsewhere.

    If x carries its rounding error and an entry may lie on either side of the bound, the result there encloses both
    values.
    """
    if carries_rounding(x):
        return xp.select([x < bound, x >= bound], [below, above])
    return xp.where(x < bound, below, above)


def by_sign(xp: Any, sign: Array, up: Array, down: Array) -> Array:
    """Return ``up`` where ``sign`` is positive, ``down`` where it is negative, −inf (the log of 0) where it is 0."""
    if carries_rounding(sign):
        return xp.select([sign > 0, sign < 0, sign == 0], [up, down, xp.full_like(sign, -math.inf)])
    return xp.where(sign > 0, up, xp.where(sign < 0, down, xp.full_like(down, -math.inf)))


def off_by(x: Array, rest: float) -> Array:
    """Return x, with the truncation error ``rest`` added to its error bound if it has one."""
    return x.widen(rest) if carries_rounding(x) else x


def exp(xp: Any, x: Array) -> Array:
    """Return e^x; for plain floats at most e^700, so that the result is finite."""
    return xp.exp(x) if carries_rounding(x) else xp.exp(at_most(xp, x, LARGEST_EXPONENT))


def at_most(xp: Any, x: Array, bound: float) -> Array:
    """Return min(x, bound), entry by entry."""
    return np.minimum(x, bound) if xp in (np, _NUMPY) else xp.clip(x, max=bound)


def at_least(xp: Any, x: Array, bound: float) -> Array:
    """Return max(x, bound), entry by entry."""
    return np.maximum(x, bound) if xp in (np, _NUMPY) else xp.clip(x, min=bound)


def log_abs(x: Array) -> Array:
    """Return log |x|, which is −inf at zero, without a warning."""
    xp = array_namespace(x)
    size = xp.abs(x)
    zero = size == 0
    return xp.where(zero, xp.full_like(size, -math.inf), xp.log(xp.where(zero, xp.ones_like(size), size)))


def log_of(number: float, like: Array) -> Array:
    """Return log ``number`` in every entry of an array of the shape and type of ``like``."""
    xp = array_namespace(like)
    return xp.log(xp.full_like(like, number))
