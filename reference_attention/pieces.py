"""Formulas in pieces and series cut off, on NumPy arrays, on torch tensors, and on arrays that carry their rounding.

What carries its rounding is known by its method ``widened`` (:class:`theorems.bounded.Bounded`): a comparison
of it is true only where it is sure, so that it may lie on either side of a bound.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from reference_attention.loss import Array

_NUMPY = array_namespace(np.empty(0))
LARGEST_EXPONENT = 700.0
"""Beyond it plain floats take this exponential for theirs."""


def carries_rounding(x: Array) -> bool:
    return hasattr(x, "widen")


def namespace(*arrays: Array) -> Any:
    """That of an array which carries its rounding, if there is one."""
    return namespace_of(next(filter(carries_rounding, arrays), arrays[0]))


def namespace_of(x: Array) -> Any:
    """As ``array_namespace``; at once for NumPy arrays, of which a descent asks ten times a step."""
    return np if type(x) is np.ndarray else array_namespace(x)


def pieces(xp: Any, x: Array, bound: float, below: Array, above: Array) -> Array:
    """``below`` where x < bound, ``above`` elsewhere; what contains both where x may be on either side."""
    if carries_rounding(x):
        return xp.select([x < bound, x >= bound], [below, above])
    return xp.where(x < bound, below, above)


def by_sign(xp: Any, sign: Array, up: Array, down: Array) -> Array:
    """``up`` where the sign is positive, ``down`` where it is negative, the logarithm of 0 where it is 0."""
    if carries_rounding(sign):
        return xp.select([sign > 0, sign < 0, sign == 0], [up, down, xp.full_like(sign, -math.inf)])
    return xp.where(sign > 0, up, xp.where(sign < 0, down, xp.full_like(down, -math.inf)))


def off_by(x: Array, rest: float) -> Array:
    """x, what was cut off being at most ``rest``."""
    return x.widen(rest) if carries_rounding(x) else x


def exp(xp: Any, x: Array) -> Array:
    """e^x; of plain floats at most e^700, which stays finite."""
    return xp.exp(x) if carries_rounding(x) else xp.exp(at_most(xp, x, LARGEST_EXPONENT))


def at_most(xp: Any, x: Array, bound: float) -> Array:
    return np.minimum(x, bound) if xp in (np, _NUMPY) else xp.clip(x, max=bound)


def at_least(xp: Any, x: Array, bound: float) -> Array:
    return np.maximum(x, bound) if xp in (np, _NUMPY) else xp.clip(x, min=bound)


def log_abs(x: Array) -> Array:
    """log |x|, −inf at zero, silently."""
    xp = array_namespace(x)
    size = xp.abs(x)
    zero = size == 0
    return xp.where(zero, xp.full_like(size, -math.inf), xp.log(xp.where(zero, xp.ones_like(size), size)))


def log_of(number: float, like: Array) -> Array:
    """The logarithm of a constant, whose float is none."""
    xp = array_namespace(like)
    return xp.log(xp.full_like(like, number))
