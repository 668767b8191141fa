"""Functions that only rearrange entries: they act on values and errors alike, and plain operands have the error 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from theorems.bounded.array import FUNCTIONS, Bounded, Values, for_function, from_trusted, parts

MOVES: tuple[Callable[..., Any], ...] = (
    np.reshape,
    np.ravel,
    np.squeeze,
    np.expand_dims,
    np.swapaxes,
    np.moveaxis,
    np.transpose,
    np.broadcast_to,
    np.take,
    np.take_along_axis,
    np.repeat,
    np.tile,
    np.flip,
    np.roll,
    np.copy,
)
"""NumPy functions of one array, their first argument; the other arguments are shapes, axes and indices."""
JOINS: tuple[Callable[..., Any], ...] = (np.concatenate, np.stack)
"""NumPy functions of a sequence of arrays."""


def _moving_rule(function: Callable[..., Any]) -> Callable[..., Bounded]:
    def rule(a: Any, *rest: Any, **keywords: Any) -> Bounded:
        x, e = _both(a)
        return from_trusted(function(x, *rest, **keywords), function(e, *rest, **keywords))

    return rule


def _joining_rule(function: Callable[..., Any]) -> Callable[..., Bounded]:
    def rule(arrays: Any, axis: Any = 0) -> Bounded:
        pairs = [_both(a) for a in arrays]
        return from_trusted(function([x for x, _ in pairs], axis=axis), function([e for _, e in pairs], axis=axis))

    return rule


def _both(a: Any) -> tuple[Values, Values]:
    x, e = parts(a)
    return x, np.broadcast_to(e, x.shape)


for _function in MOVES:
    FUNCTIONS[_function] = _moving_rule(_function)
for _function in JOINS:
    FUNCTIONS[_function] = _joining_rule(_function)


@for_function(np.broadcast_arrays)
def broadcast_arrays(*arrays: Any) -> tuple[Bounded, ...]:
    """Broadcast the arrays against each other; plain arrays become bounded arrays with the error 0."""
    pairs = [parts(a if isinstance(a, Bounded) else Bounded(a)) for a in arrays]
    shape = np.broadcast_shapes(*(x.shape for x, _ in pairs))
    return tuple(from_trusted(np.broadcast_to(x, shape), np.broadcast_to(e, shape)) for x, e in pairs)


@for_function(np.where)
def where(condition: Any, a: Any, b: Any) -> Bounded:
    """Select entries by a Boolean array; for a comparison that may be uncertain, use :func:`.comparisons.either`."""
    if isinstance(condition, Bounded):
        raise TypeError("numpy.where: the condition is a bounded array; give a comparison, such as x > 0.")
    (x, e), (y, f) = parts(a), parts(b)
    value: Any = np.where(condition, x, y)
    return from_trusted(value, np.broadcast_to(np.where(condition, e, f), value.shape))


@for_function(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1) -> Bounded:
    """Return the differences of neighbouring entries along an axis (n = 1 only)."""
    if n != 1:
        raise TypeError("numpy.diff: bounded arrays have a rule for n = 1 only.")
    moved: Any = np.moveaxis(a, axis, 0)
    return np.moveaxis(moved[1:] - moved[:-1], 0, axis)


@for_function(np.zeros_like)
def zeros_like(a: Any) -> Bounded:
    """Return zeros without error in the shape of a."""
    return Bounded(np.zeros(a.shape))


@for_function(np.ones_like)
def ones_like(a: Any) -> Bounded:
    """Return ones without error in the shape of a."""
    return Bounded(np.ones(a.shape))


@for_function(np.full_like)
def full_like(a: Any, fill_value: Any) -> Bounded:
    """Return an array in the shape of a, filled with a number that is taken as exact."""
    return Bounded(np.full(a.shape, fill_value))


@for_function(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    """Return the shape of the array."""
    return a.shape


@for_function(np.ndim)
def ndim(a: Any) -> int:
    """Return the number of axes."""
    return a.ndim


@for_function(np.size)
def size(a: Any, axis: int | None = None) -> int:
    """Return the number of entries, of the array or along an axis."""
    return a.size if axis is None else a.shape[axis]
