"""Adversarial bounded arrays, exact numbers drawn from their balls, and a test that a result contains the
true value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flint import arb

from theorems.bounded import Bounded

BITS = 2600
"""Precision in bits: floats between 2^−1074 and 2^1024 and their sums are exact, products of two floats nearly so."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
INFINITY, UNDEFINED = arb("inf"), arb("nan")


def wide(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return values of both signs: 1e-300 to 1e300, subnormals, zeros, integers and their neighbours, and exact
    infinities.
    """
    kinds = [
        np.exp(rng.uniform(-690, 690, shape)),
        np.exp(rng.uniform(-20, 20, shape)),
        rng.uniform(0, 4, shape),
        np.round(rng.uniform(0, 4, shape)),
        np.nextafter(np.round(rng.uniform(0, 3, shape)), rng.choice([-1.0, 9.0], shape)),
        rng.integers(0, 9, shape) * 2.0**-1074,
        np.full(shape, 2.0**-1022),
        np.zeros(shape),
        np.full(shape, 1.7e308),
        np.full(shape, np.inf),
    ]
    weights = np.array([3, 4, 5, 2, 1, 1, 0.5, 1.5, 0.3, 0.3])
    chosen = rng.choice(len(kinds), shape, p=weights / weights.sum())
    return np.choose(chosen, kinds) * rng.choice([-1.0, 1.0], shape)


def finite(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    x = wide(rng, shape)
    return np.where(np.isfinite(x), x, 1.0)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.abs(wide(rng, shape))


def exponents(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return exponents x where e^x is ordinary, overflows, is subnormal, vanishes or is near 1; also −∞, and a few
    numbers from :func:`wide`.
    """
    x = rng.uniform(-760, 715, shape)
    x = np.where(rng.random(shape) < 0.4, rng.normal(size=shape) * 3, x)
    x = np.where(rng.random(shape) < 0.1, rng.normal(size=shape) * 1e-12, x)
    x = np.where(rng.random(shape) < 0.1, -np.inf, x)
    x = np.where(rng.random(shape) < 0.1, np.round(x), x)
    return np.where(rng.random(shape) < 0.1, wide(rng, shape), x)


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return rows whose entries cancel in pairs up to a rounding."""
    x = finite(rng, shape) / 1e10
    if not shape:
        return x
    half = shape[-1] // 2
    x[..., half : 2 * half] = -x[..., :half] * (1 + 2.0**-52 * rng.integers(-1, 2, (*shape[:-1], half)))
    return rng.permuted(x, axis=-1)


def moderate(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(0.1, 3.0, shape) * rng.choice([-1.0, 1.0], shape)


def upper(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(0.1, 3.0, shape)


def with_errors(rng: np.random.Generator, value: np.ndarray, unknown: float = 0.02) -> Bounded:
    """Return balls around the values, with radii of zero, a rounding, a part of the value, the whole value, more, any
    size or order 1; a few radii are infinite.
    """
    shape = value.shape
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    kinds = [
        np.zeros(shape),
        size * 2.0**-53,
        size * 10.0 ** rng.uniform(-15, 0, shape),
        size,
        np.minimum(size, 1e290) * 10.0 ** rng.uniform(0, 10, shape),
        np.exp(rng.uniform(-720, 690, shape)),
        10.0 ** rng.uniform(-15, 2, shape),
    ]
    weights = np.array([4, 3, 4, 1, 0.5, 0.5, 1.5])
    chosen = rng.choice(len(kinds), shape, p=weights / weights.sum())
    # One time in five all entries of the operand are exact.
    error = np.choose(chosen, kinds) * (rng.random() < 0.8)
    error = np.where(rng.random(shape) < unknown * (rng.random() < 0.3), np.inf, error)
    return Bounded(value, np.where(np.isinf(value), 0.0, error))


def sampled(rng: np.random.Generator, x: Bounded, corner: float | None = None) -> np.ndarray:
    """Return a number from each ball, as an array of ``arb``: an end, the centre or a point between; any number or NaN
    where the error is infinite.
    """
    theta = rng.choice([-1.0, -1.0, 1.0, 1.0, 0.0, 0.5, -0.75, 2.0**-20], x.shape)
    if corner is not None:
        theta = np.full(x.shape, corner)
    out = np.empty(x.shape, dtype=object)
    for k in np.ndindex(x.shape):
        v, e = float(x.value[k]), float(x.error[k])
        if np.isinf(e):
            out[k] = [UNDEFINED, arb(rng.normal() * 1e9), INFINITY, arb(0)][rng.integers(4)]
        elif np.isinf(v):
            out[k] = INFINITY if v > 0 else -INFINITY
        else:
            out[k] = arb(v) + arb(float(theta[k])) * arb(e)
    return out


def inside(truth: Any, value: float, error: float) -> bool:
    """Return whether |truth − value| ≤ error for sure; an infinite error contains everything, an infinite value only
    itself.
    """
    if np.isnan(value) or not error >= 0:
        return False
    if np.isinf(error):
        return bool(np.isfinite(value))
    if np.isinf(value):
        return error == 0 and bool(truth == (INFINITY if value > 0 else -INFINITY))
    return bool(abs(truth - arb(value)) <= arb(error))


def escaped(truth: Any, result: Bounded) -> list[str]:
    """Return descriptions of the entries whose true value lies outside their ball; an empty list if none does."""
    truth = np.asarray(truth, dtype=object)
    assert truth.shape == result.shape, (truth.shape, result.shape)
    return [
        f"{k}: {truth[k].str(20)} outside {result.value[k]!r} ± {result.error[k]!r}"
        for k in np.ndindex(result.shape)
        if not inside(truth[k], float(result.value[k]), float(result.error[k]))
    ]


def used(truth: Any, result: Bounded) -> np.ndarray:
    """Return the share of each error bound that is used, |truth − value| / error, or 0 where both terms vanish."""
    truth = np.asarray(truth, dtype=object)
    out = np.zeros(result.shape)
    for k in np.ndindex(result.shape):
        if result.error[k] > 0:
            out[k] = float((abs(truth[k] - arb(float(result.value[k]))) / arb(float(result.error[k]))).mid())
    return out
