"""A table of all rules of bounded arrays, each with its true value on exact numbers and the width that it may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from flint import arb

from tests.theorems.bounded.balls import (
    INFINITY,
    UNDEFINED,
    Draw,
    cancelling,
    exponents,
    finite,
    moderate,
    positive,
    upper,
    wide,
)

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Primitive:
    """A rule of one or two operands.

    Attributes:
        name: the name of the rule in the report of a failure.
        key: the key in the table of rules: a function, or a ufunc with the name of a method.
        run: the formula, on bounded arrays and on floats.
        truth: the same formula on arrays of exact ``arb``.
        draws: functions that draw adversarial operands, used in turn.
        shapes: tuples of shapes of the operands, used in turn.
        tame: for each operand a function that draws ordinary values, on which the width of results is measured.
        size: function of the float operands: the magnitude to which the rule's own rounding is relative; None for
            rules that round nothing.
        roundings: the rule's own error is at most this many times 2^−53 of ``size``.
        use: some corner of the operands' balls uses at least this share of the error bound (median over entries).
    """

    name: str
    key: Any
    run: Callable[..., Any]
    truth: Callable[..., Any]
    draws: tuple[Draw, ...]
    shapes: Sequence[Shapes]
    tame: tuple[Draw, ...]
    size: Callable[..., Any] | None
    roundings: float
    use: float = 0.9


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of numbers as a function of arrays, entry by entry."""
    return np.frompyfunc(function, function.__code__.co_argcount, 1)


@each
def exp(t: Any) -> Any:
    return arb(0) if t == -INFINITY else INFINITY if t == INFINITY else t.exp()


@each
def expm1(t: Any) -> Any:
    return arb(-1) if t == -INFINITY else INFINITY if t == INFINITY else t.expm1()


@each
def log(t: Any) -> Any:
    return -INFINITY if t == 0 else INFINITY if t == INFINITY else t.log() if t > 0 else UNDEFINED


@each
def log1p(t: Any) -> Any:
    return -INFINITY if t == -1 else INFINITY if t == INFINITY else t.log1p() if t > -1 else UNDEFINED


@each
def tanh(t: Any) -> Any:
    return arb(1) if t == INFINITY else arb(-1) if t == -INFINITY else t.tanh()


@each
def arctan(t: Any) -> Any:
    return arb.pi() / 2 if t == INFINITY else -arb.pi() / 2 if t == -INFINITY else t.atan()


@each
def sqrt(t: Any) -> Any:
    return INFINITY if t == INFINITY else t.sqrt() if t >= 0 else UNDEFINED


@each
def divide(s: Any, t: Any) -> Any:
    if t in (INFINITY, -INFINITY):
        return arb(0) if abs(s) < INFINITY else UNDEFINED
    return s / t if t != 0 else UNDEFINED


@each
def larger(s: Any, t: Any) -> Any:
    return UNDEFINED if s.is_nan() or t.is_nan() else s if s >= t else t


@each
def smaller(s: Any, t: Any) -> Any:
    return UNDEFINED if s.is_nan() or t.is_nan() else s if s <= t else t


@each
def below_one_or_other(s: Any, t: Any) -> Any:
    return UNDEFINED if s.is_nan() else s if s < 1 else t


@each
def sign(t: Any) -> Any:
    return UNDEFINED if t.is_nan() else arb(1) if t > 0 else arb(-1) if t < 0 else arb(0)


@each
def finite_part(t: Any) -> Any:
    return arb(float(t.is_finite()))


def logsumexp_of(row: Sequence[Any]) -> Any:
    """Return log Σ e^t, exactly for one term; the largest t is subtracted first, since no precision holds e^{1e300}."""
    if any(t.is_nan() for t in row):
        return UNDEFINED
    live = [t for t in row if t != -INFINITY]
    top = reduce(larger, row)
    if top in (INFINITY, -INFINITY) or len(live) == 1:
        return top
    return top + sum((exp_of_difference(t - top) for t in live), arb(0)).log()


def exp_of_difference(t: Any) -> Any:
    """Return e^t for t ≤ 0; for t < −10⁶ only an interval that contains e^t."""
    if t < -(10**6):
        tiny = arb(-(10**6)).exp()
        return tiny.union(arb(0))
    return t.exp()


logaddexp = each(lambda s, t: logsumexp_of([s, t]))


def along(function: Callable[[Sequence[Any]], Any]) -> Callable[[Any], Any]:
    """Return a function of a row as a function of arrays, along the last axis."""

    def applied(x: Any) -> Any:
        out = np.empty(x.shape[:-1], dtype=object)
        for k in np.ndindex(out.shape):
            out[k] = function(list(x[k]))
        return out

    return applied


def total(row: Sequence[Any]) -> Any:
    return sum(row, arb(0))


def vecdot(x: Any, y: Any) -> Any:
    return along(total)(np.multiply(*np.broadcast_arrays(x, y)))


def matmul(x: Any, y: Any) -> Any:
    return along(total)(x[..., :, None, :] * np.swapaxes(y, -1, -2)[..., None, :, :])


def length(row: Sequence[Any]) -> Any:
    if any(t.is_nan() for t in row):
        return UNDEFINED
    return INFINITY if any(abs(t) == INFINITY for t in row) else total([t * t for t in row]).sqrt()


def dots(x: Any, y: Any) -> Any:
    return np.vecdot(np.abs(x), np.abs(y))


ONE: Sequence[Shapes] = (((40,),), ((3, 5),), ((),))
TWO: Sequence[Shapes] = (((40,), (40,)), ((4, 1), (5,)), ((), (9,)))
ROWS: Sequence[Shapes] = (((6, 1),), ((6, 2),), ((5, 9),), ((1, 1000),), ((0, 3),))
PAIRS: Sequence[Shapes] = (((6, 1), (6, 1)), ((5, 4), (4,)), ((3, 1, 7), (2, 7)), ((1, 500), (1, 500)))
MATRICES: Sequence[Shapes] = (((4, 3), (3, 5)), ((2, 4, 3), (3, 2)), ((1, 60), (60, 2)))


def unary(name: str, key: Any, run: Any, truth: Any, *draws: Draw, tame: Draw = moderate, **limits: Any) -> Primitive:
    return Primitive(name, key, run, truth, draws, ONE, (tame,), **limits)


def binary(name: str, key: Any, run: Any, truth: Any, *draws: Draw, tame: Draw = moderate, **limits: Any) -> Primitive:
    return Primitive(name, key, run, truth, draws, TWO, (tame, tame), **limits)


def call(ufunc: np.ufunc) -> tuple[np.ufunc, str]:
    return ufunc, "__call__"


def moves(name: str, key: Any, run: Callable[[Any], Any], shape: tuple[int, ...]) -> Primitive:
    return Primitive(name, key, run, run, (wide,), ((shape,),), (moderate,), None, 0.0, use=1.0)


INDEX = np.array([[2], [0], [1]])
MASK = np.array([True, False, True, True])

ARITHMETIC = [
    binary(
        "add",
        call(np.add),
        lambda x, y: x + y,
        lambda x, y: x + y,
        wide,
        cancelling,
        size=lambda x, y: abs(x + y),
        roundings=1.01,
    ),
    binary(
        "subtract",
        call(np.subtract),
        lambda x, y: x - y,
        lambda x, y: x - y,
        wide,
        cancelling,
        size=lambda x, y: abs(x - y),
        roundings=1.01,
    ),
    binary(
        "multiply",
        call(np.multiply),
        lambda x, y: x * y,
        lambda x, y: x * y,
        wide,
        size=lambda x, y: abs(x * y),
        roundings=1.01,
    ),
    binary("divide", call(np.divide), lambda x, y: x / y, divide, wide, size=lambda x, y: abs(x / y), roundings=1.01),
    unary("negative", call(np.negative), lambda x: -x, lambda x: -x, wide, size=None, roundings=0.0, use=1.0),
    unary("positive", call(np.positive), lambda x: +x, lambda x: x, wide, size=None, roundings=0.0, use=1.0),
    unary("absolute", call(np.absolute), lambda x: abs(x), abs, wide, size=None, roundings=0.0, use=1.0),
    unary("sign", call(np.sign), np.sign, sign, wide, size=None, roundings=0.0, use=0.0),
    unary("square", call(np.square), np.square, lambda x: x * x, wide, size=lambda x: x * x, roundings=1.01, use=0.9),
    unary(
        "power 3", call(np.power), lambda x: x**3, lambda x: x * x * x, wide, size=lambda x: abs(x**3), roundings=2.01
    ),
    unary(
        "power 0",
        call(np.power),
        lambda x: x**0,
        lambda x: np.full(np.shape(x), arb(1), dtype=object),
        finite,
        size=None,
        roundings=0.0,
        use=0.0,
    ),
    unary(
        "power -2",
        call(np.power),
        lambda x: x**-2,
        lambda x: divide(arb(1), x * x),
        wide,
        size=lambda x: x**-2.0,
        roundings=2.02,
        use=0.8,
    ),
    binary(
        "select",
        np.select,
        lambda x, y: np.select([x < 1.0, x >= 1.0], [x, y]),
        below_one_or_other,
        wide,
        size=None,
        roundings=0.0,
        use=0.99,
    ),
    binary("maximum", call(np.maximum), np.maximum, larger, wide, cancelling, size=None, roundings=0.0, use=0.99),
    binary("minimum", call(np.minimum), np.minimum, smaller, wide, cancelling, size=None, roundings=0.0, use=0.99),
    unary(
        "clip",
        np.clip,
        lambda x: np.clip(x, -1.0, 2.0),
        lambda x: smaller(larger(x, arb(-1)), arb(2)),
        wide,
        size=None,
        roundings=0.0,
        use=0.0,
    ),
    unary(
        "clip below",
        np.clip,
        lambda x: np.clip(x, min=-1.0),
        lambda x: larger(x, arb(-1)),
        wide,
        size=None,
        roundings=0.0,
        use=0.0,
    ),
]
FUNCTIONS_OF_ONE = [
    unary("exp", call(np.exp), np.exp, exp, exponents, size=np.exp, roundings=8.01),
    unary("expm1", call(np.expm1), np.expm1, expm1, exponents, wide, size=lambda x: abs(np.expm1(x)), roundings=8.01),
    unary("log", call(np.log), np.log, log, positive, wide, tame=upper, size=lambda x: abs(np.log(x)), roundings=8.01),
    unary(
        "log1p", call(np.log1p), np.log1p, log1p, positive, wide, exponents, tame=upper, size=np.log1p, roundings=8.01
    ),
    unary("sqrt", call(np.sqrt), np.sqrt, sqrt, positive, wide, tame=upper, size=np.sqrt, roundings=1.01),
    unary("tanh", call(np.tanh), np.tanh, tanh, exponents, wide, size=np.tanh, roundings=8.01),
    unary("arctan", call(np.arctan), np.arctan, arctan, exponents, wide, size=np.arctan, roundings=8.01),
    binary(
        "logaddexp",
        call(np.logaddexp),
        np.logaddexp,
        logaddexp,
        exponents,
        wide,
        size=lambda x, y: abs(np.logaddexp(x, y)) + 0.7,
        roundings=18.0,
    ),
]
SUMS = [
    Primitive(
        "sum",
        np.sum,
        lambda x: np.sum(x, axis=-1),
        along(total),
        (wide, cancelling, finite),
        (*ROWS, ((2, 10_000),)),
        (moderate,),
        lambda x: np.shape(x)[-1] * np.sum(np.abs(x), axis=-1),
        1.01,
    ),
    Primitive(
        "sum of all",
        np.sum,
        lambda x: x.sum(),
        lambda x: np.asarray(total(list(x.ravel())), dtype=object),
        (wide, finite),
        ROWS[:4],
        (moderate,),
        lambda x: x.size * np.sum(np.abs(x)),
        1.01,
    ),
    Primitive(
        "sum of two axes",
        np.sum,
        lambda x: np.sum(x, axis=(0, 2)),
        lambda x: along(total)(np.moveaxis(x, 0, -1).reshape(x.shape[1], -1)),
        (wide, finite),
        (((2, 3, 4),),),
        (moderate,),
        lambda x: 8 * np.sum(np.abs(x), axis=(0, 2)),
        1.01,
    ),
    Primitive(
        "add.reduce",
        (np.add, "reduce"),
        lambda x: np.add.reduce(x, axis=-1, keepdims=True),
        lambda x: along(total)(x)[..., None],
        (wide, cancelling),
        ROWS,
        (moderate,),
        lambda x: np.shape(x)[-1] * np.sum(np.abs(x), axis=-1, keepdims=True),
        1.01,
    ),
    Primitive(
        "mean",
        np.mean,
        lambda x: np.mean(x, axis=-1),
        along(lambda r: total(r) / len(r)),
        (wide, cancelling),
        ROWS,
        (moderate,),
        lambda x: (np.shape(x)[-1] + 1) * np.mean(np.abs(x), axis=-1),
        1.01,
    ),
    Primitive(
        "cumsum",
        np.cumsum,
        lambda x: np.cumsum(x, axis=-1),
        lambda x: np.cumsum(x, axis=-1),
        (wide, cancelling),
        ROWS,
        (moderate,),
        lambda x: (1 + np.arange(np.shape(x)[-1])) * np.cumsum(np.abs(x), axis=-1),
        1.01,
    ),
    Primitive(
        "cumsum, flat",
        np.cumsum,
        np.cumsum,
        lambda x: np.cumsum(x),
        (finite,),
        (((3, 4),),),
        (moderate,),
        lambda x: 12 * np.cumsum(np.abs(x)),
        1.01,
    ),
    Primitive(
        "add.accumulate",
        (np.add, "accumulate"),
        lambda x: np.add.accumulate(x, axis=-1),
        lambda x: np.cumsum(x, axis=-1),
        (wide,),
        ROWS,
        (moderate,),
        lambda x: (1 + np.arange(np.shape(x)[-1])) * np.cumsum(np.abs(x), axis=-1),
        1.01,
    ),
    Primitive(
        "logaddexp.reduce",
        (np.logaddexp, "reduce"),
        lambda x: np.logaddexp.reduce(x, axis=-1),
        along(logsumexp_of),
        (exponents, wide, moderate),
        ROWS[:4],
        (moderate,),
        lambda x: 2.0 * np.shape(x)[-1] + 20 + np.abs(np.logaddexp.reduce(x, axis=-1)),
        1.01,
    ),
]
PRODUCTS = [
    Primitive(
        "vecdot",
        call(np.vecdot),
        np.vecdot,
        vecdot,
        (wide, finite, cancelling),
        PAIRS,
        (moderate, moderate),
        lambda x, y: x.shape[-1] * dots(x, y),
        1.01,
    ),
    Primitive(
        "matmul",
        call(np.matmul),
        lambda x, y: x @ y,
        matmul,
        (finite, wide, cancelling),
        MATRICES,
        (moderate, moderate),
        lambda x, y: x.shape[-1] * (np.abs(x) @ np.abs(y)),
        1.01,
    ),
    Primitive(
        "dot",
        np.dot,
        np.dot,
        matmul,
        (finite,),
        MATRICES[:1],
        (moderate, moderate),
        lambda x, y: 3 * (np.abs(x) @ np.abs(y)),
        1.01,
    ),
    Primitive(
        "inner",
        np.inner,
        np.inner,
        lambda x, y: matmul(x, y.T),
        (finite,),
        (((4, 3), (5, 3)),),
        (moderate, moderate),
        lambda x, y: 3 * (np.abs(x) @ np.abs(y.T)),
        1.01,
    ),
    Primitive(
        "outer",
        np.outer,
        np.outer,
        lambda x, y: x[:, None] * y,
        (finite,),
        (((4,), (5,)),),
        (moderate, moderate),
        lambda x, y: np.abs(np.outer(x, y)),
        1.01,
    ),
    Primitive(
        "einsum",
        np.einsum,
        lambda x, y: np.einsum("btd,bd->bt", x, y),
        lambda x, y: vecdot(x, y[:, None, :]),
        (finite, wide),
        (((2, 4, 3), (2, 3)),),
        (moderate, moderate),
        lambda x, y: 3 * dots(x, y[:, None, :]),
        1.01,
    ),
    Primitive(
        "norm",
        np.linalg.norm,
        lambda x: np.linalg.norm(x, axis=-1),
        along(length),
        (wide, finite, cancelling),
        ROWS[:4],
        (moderate,),
        lambda x: (np.shape(x)[-1] / 2 + 3) * np.linalg.norm(x, axis=-1),
        1.01,
    ),
    Primitive(
        "norm of all",
        np.linalg.norm,
        np.linalg.norm,
        lambda x: np.asarray(length(list(x.ravel())), dtype=object),
        (finite,),
        (((3, 4),), ((6,),)),
        (moderate,),
        lambda x: (x.size / 2 + 3) * np.linalg.norm(x),
        1.01,
    ),
    Primitive(
        "vector_norm",
        np.linalg.vector_norm,
        lambda x: np.linalg.vector_norm(x, axis=-1, keepdims=True),
        lambda x: along(length)(x)[..., None],
        (finite,),
        ROWS[:3],
        (moderate,),
        lambda x: (np.shape(x)[-1] / 2 + 3) * np.linalg.norm(x, axis=-1, keepdims=True),
        1.01,
    ),
]
EXTREMES = [
    Primitive(
        "max",
        np.max,
        lambda x: x.max(axis=-1),
        along(lambda r: reduce(larger, r)),
        (wide, cancelling),
        ROWS,
        (moderate,),
        None,
        0.0,
        0.99,
    ),
    Primitive(
        "min",
        np.min,
        lambda x: x.min(axis=-1),
        along(lambda r: reduce(smaller, r)),
        (wide, cancelling),
        ROWS,
        (moderate,),
        None,
        0.0,
        0.99,
    ),
    Primitive(
        "maximum.reduce",
        (np.maximum, "reduce"),
        lambda x: np.maximum.reduce(x, axis=-1),
        along(lambda r: reduce(larger, r)),
        (wide,),
        ROWS,
        (moderate,),
        None,
        0.0,
        0.99,
    ),
    Primitive(
        "minimum.reduce",
        (np.minimum, "reduce"),
        lambda x: np.minimum.reduce(x, axis=-1),
        along(lambda r: reduce(smaller, r)),
        (wide,),
        ROWS,
        (moderate,),
        None,
        0.0,
        0.99,
    ),
    Primitive(
        "max of all",
        np.max,
        np.max,
        lambda x: np.asarray(reduce(larger, x.ravel()), dtype=object),
        (wide,),
        ROWS[:3],
        (moderate,),
        None,
        0.0,
        0.99,
    ),
]
MOVES = [
    moves("reshape", np.reshape, lambda x: np.reshape(x, (4, 3)), (3, 4)),
    moves("ravel", np.ravel, np.ravel, (3, 4)),
    moves("squeeze", np.squeeze, lambda x: np.squeeze(x, 1), (3, 1)),
    moves("expand_dims", np.expand_dims, lambda x: np.expand_dims(x, 0), (3,)),
    moves("swapaxes", np.swapaxes, lambda x: np.swapaxes(x, 0, 1), (3, 4)),
    moves("moveaxis", np.moveaxis, lambda x: np.moveaxis(x, 0, 2), (3, 4, 2)),
    moves("transpose", np.transpose, np.transpose, (3, 4)),
    moves("broadcast_to", np.broadcast_to, lambda x: np.broadcast_to(x, (2, 3, 4)), (3, 1)),
    moves("take", np.take, lambda x: np.take(x, [2, 0], axis=0), (3, 4)),
    moves("take_along_axis", np.take_along_axis, lambda x: np.take_along_axis(x, INDEX, axis=1), (3, 4)),
    moves("repeat", np.repeat, lambda x: np.repeat(x, 2, axis=0), (3, 4)),
    moves("tile", np.tile, lambda x: np.tile(x, (2, 1)), (3, 4)),
    moves("flip", np.flip, lambda x: np.flip(x, axis=1), (3, 4)),
    moves("roll", np.roll, lambda x: np.roll(x, 1, axis=1), (3, 4)),
    moves("copy", np.copy, np.copy, (3, 4)),
    moves("concatenate", np.concatenate, lambda x: np.concatenate([x, x[1:]], axis=0), (3, 4)),
    moves("stack", np.stack, lambda x: np.stack([x, x], axis=1), (3, 4)),
    moves("broadcast_arrays", np.broadcast_arrays, lambda x: np.broadcast_arrays(x, x[:1])[1], (3, 4)),
    moves("index", call(np.positive), lambda x: x[:, None, MASK], (3, 4)),
    Primitive(
        "where",
        np.where,
        lambda x, y: np.where(MASK, x, y),
        lambda x, y: np.where(MASK, x, y),
        (wide,),
        (((3, 4), (4,)),),
        (moderate, moderate),
        None,
        0.0,
        1.0,
    ),
    Primitive(
        "diff",
        np.diff,
        lambda x: np.diff(x, axis=0),
        lambda x: np.diff(x, axis=0),
        (wide,),
        (((5, 3),),),
        (moderate,),
        lambda x: np.abs(np.diff(x, axis=0)),
        1.01,
        0.3,
    ),
]
PRIMITIVES = [*ARITHMETIC, *FUNCTIONS_OF_ONE, *SUMS, *PRODUCTS, *EXTREMES, *MOVES]

NO_NUMBERS = {
    *(call(f) for f in (np.greater_equal, np.greater, np.less_equal, np.less, np.equal, np.not_equal, np.isfinite)),
    *(np.zeros_like, np.ones_like, np.full_like, np.shape, np.ndim, np.size),
}
"""Rules whose result is not a ball, or does not depend on the operands' values; each has a test of its own."""
