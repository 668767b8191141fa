"""Within ``spacing(eps)`` every primitive's ball contains the result of the same formula in numbers of that spacing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reference_attention.floats import EPS
from tests.theorems.bounded.primitives import MOVES, NO_NUMBERS, PRIMITIVES, Primitive
from theorems.bounded import Bounded, exact, spacing, with_rounding
from theorems.bounded.arithmetic import FLOAT64, UNIT, current, without_kernel

COMPUTED = [p for p in PRIMITIVES if p not in MOVES]


def shifted(x: np.ndarray) -> np.ndarray:
    """Return log-sum-exp as kernels compute it; NumPy's own adds in pairs."""
    with np.errstate(invalid="ignore"):
        top = np.max(x, axis=-1, keepdims=True)
        top = np.where(np.isfinite(top), top, x.dtype.type(0))
        sums = np.sum(np.exp(x - top), axis=-1, dtype=x.dtype)
        return np.log(sums) + top[..., 0]


KERNELS: dict[str, Callable[..., Any]] = {"logaddexp.reduce": shifted}
"""Primitives that kernels compute by another formula, which is given here."""


def of_all_sizes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers over the range of float32, with its subnormals and zeros."""
    x = np.exp(rng.uniform(-100, 88, shape)) * rng.choice([-1.0, 1.0], shape)
    x = np.where(rng.random(shape) < 0.6, rng.normal(size=shape) * 5, x)
    return np.where(rng.random(shape) < 0.1, 0.0, x)


def moderate(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(0.2, 3.0, shape) * rng.choice([-1.0, 1.0], shape)


@pytest.mark.parametrize("primitive", COMPUTED, ids=lambda p: p.name)
@pytest.mark.parametrize(
    ("kind", "eps", "draw"),
    [(np.float32, 2.0**-23, of_all_sizes), (np.float32, 2.0**-23, moderate), (np.float16, 2.0**-10, moderate)],
    ids=["float32", "float32-tame", "float16"],
)
def test_a_kernel_s_result_lies_in_the_ball(primitive: Primitive, kind: Any, eps: float, draw: Any) -> None:
    assert outside(primitive, kind, eps, draw) == []


def outside(primitive: Primitive, kind: Any, eps: float, draw: Any, trials: int = 25) -> list[str]:
    rng = np.random.default_rng(4)
    kernel = KERNELS.get(primitive.name, primitive.run)
    results = []
    for shapes in primitive.shapes:
        if max(int(np.prod(shape)) for shape in shapes) > 2000:
            continue
        for _ in range(trials):
            numbers = [np.asarray(draw(rng, shape), dtype=kind) for shape in shapes]
            # The kernel's operand is the value itself, or lies anywhere in a ball around another value.
            values = [
                x.astype(float) * (1 + rng.choice([0.0, eps, 1e-3]) * rng.uniform(-1, 1, x.shape)) for x in numbers
            ]
            operands = [Bounded(v, np.abs(v - x) * (1 + EPS)) for v, x in zip(values, numbers, strict=True)]
            with spacing(eps):
                ball = primitive.run(*operands)
            with np.errstate(all="ignore"):
                theirs = np.asarray(kernel(*numbers))
            assert theirs.dtype == kind
            assert theirs.shape == ball.shape
            good = np.isinf(ball.error) | (theirs == ball.value)
            with np.errstate(all="ignore"):
                good |= np.abs(theirs.astype(float) - ball.value) <= ball.error
            results += [f"{theirs[~good][:1]} outside {ball[~good][:1]}"] if not good.all() else []
    return results[:3]


@pytest.mark.parametrize("primitive", [p for p in COMPUTED if p.size is not None], ids=lambda p: p.name)
def test_results_lie_outside_the_ball_for_a_finer_spacing(primitive: Primitive) -> None:
    """The result of a float32 kernel lies outside the ball for a spacing a thousand times finer."""
    if primitive.name != "sqrt":  # the numbers drawn here have both signs
        assert outside(primitive, np.float32, 2.0**-33, moderate)


def test_every_rule_that_computes_is_tested() -> None:
    """The remaining rules only move entries or compare them."""
    from theorems.bounded.array import FUNCTIONS, UFUNCS

    assert {*UFUNCS, *FUNCTIONS} == {p.key for p in (*COMPUTED, *MOVES)} | NO_NUMBERS


def test_the_error_grows_with_the_spacing() -> None:
    x = np.random.default_rng(0).normal(size=(5, 7))
    plain = np.sum(exact(x) * x, axis=-1).error
    for eps in (EPS, 2.0**-23, 2.0**-7):
        with spacing(eps):
            error = np.sum(exact(x) * x, axis=-1).error
        np.testing.assert_allclose(error / plain, 1 + eps / EPS, rtol=1e-2)


def test_numbers_that_overflow_in_a_kernel_are_unknown() -> None:
    x = exact([1e30, 1e10])
    with spacing(2.0**-23):
        assert np.isinf((x * x).error).tolist() == [True, False]
        assert np.isinf(np.exp(exact([89.0, 88.0])).error).tolist() == [True, False]
        assert np.isinf(np.sum(exact([3e38, 3e38, -3e38])).error)
        assert np.isinf(np.linalg.norm(exact([1e20, 0.0])).error)
    assert np.isfinite((x * x).error).all()


def test_bounds_allow_for_numbers_that_a_kernel_flushes_to_zero() -> None:
    with spacing(2.0**-23):
        for tiny in (exact([1e-30]) * 1e-10, np.exp(exact([-95.0])), np.linalg.norm(exact([[1e-25, 0.0]]), axis=-1)):
            assert (tiny.error >= tiny.value).all()


def test_constants_are_rounded_by_the_kernel() -> None:
    with spacing(2.0**-7):
        assert with_rounding(0.3).error >= 0.3 * 2.0**-8
    assert 0.3 * UNIT <= with_rounding(0.3).error <= 0.31 * UNIT
    assert with_rounding(0.0).error == 0


def test_spacing_blocks_nest_and_end() -> None:
    def fails_inside() -> None:
        with spacing(2.0**-7):
            with spacing(2.0**-23):
                assert current().theirs == 2.0**-24
            assert current().theirs == 2.0**-8
            with without_kernel():
                assert current() == FLOAT64
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails_inside()
    assert current() == FLOAT64


@pytest.mark.parametrize("eps", [0.0, EPS / 2, 0.5, -1.0])
def test_impossible_spacings_are_refused(eps: float) -> None:
    with pytest.raises(ValueError, match="spacing"), spacing(eps):
        pass
