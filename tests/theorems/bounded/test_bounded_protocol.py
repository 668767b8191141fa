"""Bounded arrays never turn into floats by accident, functions without a rule raise, and planted mistakes
are detected.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.theorems.bounded.primitives import PRIMITIVES
from tests.theorems.bounded.test_bounded import failures
from theorems.bounded import (
    Bounded,
    arithmetic,
    either,
    elementary_operations,
    exact,
    exponentials,
    extremes,
    hull,
    possibly_at_least,
    products,
    sums,
    with_rounding,
)
from theorems.bounded import array as array_module

X = Bounded([1.0, 2.0, -3.0], [0.5, 0.0, 1e-9])
SQUARE = exact(np.eye(3))

LOSES_THE_ERROR: dict[str, Callable[[], Any]] = {
    "asarray": lambda: np.asarray(X),
    "array of balls": lambda: np.array([X, X]),
    "array of entries": lambda: np.array([X[0], X[1]]),
    "asarray with a dtype": lambda: np.asarray(X, dtype=np.float32),
    "float": lambda: float(X[0]),
    "int": lambda: int(X[0]),
    "bool": lambda: bool(X[0] > X[1] or X[0]),
    "assignment": lambda: operator.setitem(np.zeros(3), slice(None), X),
    "assignment of an entry": lambda: operator.setitem(np.zeros(3), 0, X[0]),
    "in place on floats": lambda: operator.iadd(np.zeros(3), X),
    "in place": lambda: operator.iadd(exact(np.zeros(3)), X),
    "out": lambda: np.add(X, X, out=np.zeros(3)),
    "index by a ball": lambda: np.zeros(9)[X],
    "membership": lambda: 1.0 in X,
    "hash": lambda: hash(X),
    "sum of a list": lambda: np.sum([X, X]),
    "max of a list": lambda: np.max([X, X]),
    "item assignment": lambda: operator.setitem(X, 0, 1.0),
}
HAS_NO_RULE: dict[str, Callable[[], Any]] = {
    "sin": lambda: np.sin(X),
    "sort": lambda: np.sort(X),
    "argmax": lambda: np.argmax(X),
    "median": lambda: np.median(X),
    "prod": lambda: np.prod(X),
    "var": lambda: np.var(X),
    "floor_divide": lambda: X // 2,
    "remainder": lambda: X % 2,
    "outer method": lambda: np.add.outer(X, X),
    "reduceat": lambda: np.add.reduceat(X, [0, 1]),
    "at": lambda: np.add.at(X, [0], 1.0),
    "multiply.reduce": lambda: np.multiply.reduce(X),
    "det": lambda: np.linalg.det(SQUARE),
    "solve": lambda: np.linalg.solve(SQUARE, X),
    "inv": lambda: np.linalg.inv(SQUARE),
    "isnan": lambda: np.isnan(X),
    "all": lambda: np.all(X),
    "any": lambda: np.any(X),
    "nonzero": lambda: np.nonzero(X),
    "save": lambda: np.allclose(X, X),
    "interp": lambda: np.interp(X, [0, 1], [0, 1]),
    "three operands of einsum": lambda: np.einsum("i,i,i->", X, X, X),
    "another norm": lambda: np.linalg.norm(X, ord=1),
    "root": lambda: X**0.5,
    "power of a ball": lambda: np.power(2.0, X),
    "where by a ball": lambda: np.where(X, 1.0, 2.0),
    "dtype": lambda: np.sum(X, dtype=np.float32),
    "where=": lambda: np.add(X, X, where=np.array([True, False, True])),
    "initial": lambda: np.max(X, initial=0.0),
}


@pytest.mark.parametrize("attempt", LOSES_THE_ERROR.values(), ids=LOSES_THE_ERROR)
def test_no_conversion_to_floats_loses_the_error(attempt: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        attempt()


@pytest.mark.parametrize("attempt", HAS_NO_RULE.values(), ids=HAS_NO_RULE)
def test_functions_without_a_rule_raise(attempt: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        attempt()


def test_the_error_names_a_function_without_a_rule() -> None:
    with pytest.raises(TypeError, match=r"numpy\.sin has no rule"):
        np.sin(X)
    with pytest.raises(TypeError, match=r"numpy\.multiply\.reduce has no rule"):
        np.multiply.reduce(X)
    with pytest.raises(TypeError, match=r"numpy\.median has no rule"):
        np.median(X)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Bounded(np.nan),
        lambda: Bounded([1.0, np.nan]),
        lambda: Bounded(1.0, np.nan),
        lambda: Bounded(1.0, -1e-300),
        lambda: Bounded(np.inf, 1.0),
        lambda: Bounded(X),
        lambda: Bounded(1.0, X[0]),
        lambda: Bounded(1.0j),
        lambda: Bounded(np.longdouble(1)),
        lambda: Bounded([Fraction(1, 3)]),
        lambda: Bounded(2**53 + 1),
        lambda: Bounded(np.uint64(2**63 + 1)),
        lambda: Bounded("1"),
        lambda: Bounded([1.0, 2.0], [0.0, 0.0, 0.0]),
        lambda: X + np.array([1.0, np.nan, 0.0]),
        lambda: X * (2**60 + 1),
    ],
)
def test_values_that_are_not_exact_floats_are_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        wrong()


def test_numbers_of_all_types_combine_with_bounded_arrays_from_either_side() -> None:
    for other in (2, 2.0, np.float64(2), np.float32(2), np.int64(2), True, [1, 2, 3], np.arange(3), np.ones(3, bool)):
        for combined in (X + other, other + X, np.add(other, X), X * other, other - X, other / exact([1.0, 2.0, 4.0])):
            assert isinstance(combined, Bounded)
    assert isinstance(np.eye(3) @ X, Bounded)


def test_the_largest_floats_and_integers_are_handled() -> None:
    largest = np.finfo(float).max
    assert hull(exact([largest]), exact([largest])).error == 0
    for make in (Bounded, exact):
        assert make(np.array([-(2**53), 2**53])).value.tolist() == [-(2.0**53), 2.0**53]
        for beyond in (-(2**53) - 1, 2**53 + 1):
            with pytest.raises(ValueError, match=r"beyond 2\^53"):
                make(np.array([beyond]))
    assert (exact([1.0, 2.0, 0.0]) == exact([1.0, 3.0, 5.0])).tolist() == [True, False, False]


def test_values_and_errors_are_read_only() -> None:
    mine = np.ones(3)
    ball = exact(mine)
    mine[0] = 7.0
    assert ball.value.tolist() == [1.0, 1.0, 1.0]
    for result in (ball, ball + 1.0, -ball, ball[1:], np.broadcast_arrays(mine, ball[:1])[0]):
        with pytest.raises(ValueError, match="read-only"):
            result.value[0] = 7.0
        with pytest.raises(ValueError, match="read-only"):
            result.error[0] = 7.0
    mine[1] = 8.0  # the caller's own array stays writable


def test_comparisons_with_unknown_entries_are_never_certain() -> None:
    unknown = exact([1.0]) / Bounded([0.0], [1.0])
    assert np.isinf(unknown.error).all()
    for other in (unknown, exact([-np.inf]), exact([np.inf]), exact([0.0])):
        for compare in (operator.ge, operator.gt, operator.le, operator.lt, operator.eq, operator.ne):
            assert not compare(unknown, other).any()
            assert not compare(other, unknown).any()
    assert possibly_at_least(unknown, 1e300).all()
    assert not np.isfinite(unknown).any()


def test_infinities_are_exact_or_unknown() -> None:
    far = exact([np.inf, -np.inf])
    assert np.logaddexp(far[:1], 0.0).error == 0
    logs = np.sqrt(far[:1]), np.exp(exact([np.inf])), np.log(exact([0.0])), np.log1p(exact([-1.0]))
    for exactly in (far + 1.0, far * 2.0, -far, hull(far, far), *logs):
        assert np.isinf(exactly.value).all()
        assert (exactly.error == 0).all()
    overflow = exact([1e308]) * 10.0
    for unknown in (far - far, far * 0.0, far / far, overflow, np.exp(exact([800.0])), np.log(exact([-1.0]))):
        assert np.isfinite(unknown.value).all()
        assert np.isinf(unknown.error).all()
    nothing = Bounded([1.0, 1.0], [np.inf, np.inf])
    for unknown in (far * Bounded(1.0, 1.0), far / Bounded(1.0, 1.0), far + nothing, np.maximum(far, nothing)):
        assert np.isinf(unknown.error).all()
    assert np.isinf(np.logaddexp.reduce(np.concatenate([far, nothing])).error)
    assert np.isinf(np.sum(np.concatenate([far[:1], nothing])).error)
    assert np.isinf(np.logaddexp(far[:1], nothing[:1]).error)
    assert np.isinf(hull(far, exact([1.0, 1.0])).error).all()
    assert np.isinf(np.sqrt(nothing).error).all()
    assert (far >= far).all()
    assert not (far > far).any()
    assert (exact([1.0]) / far).value.tolist() == [0.0, 0.0]
    assert (exact([1.0]) / far).error.tolist() == [0.0, 0.0]


def test_operations_on_exact_zeros_are_exact() -> None:
    zero = exact([0.0])
    for result in (zero * X[:1], zero / 3.0, zero + zero, zero - zero, np.vecdot(zero, X[:1]), np.linalg.norm(zero)):
        assert result.value == 0
        assert result.error == 0
    assert np.sum(exact([0.0, 5.0, 0.0])).error == 0
    assert (exact([3.0]) - 2.5).error == 0  # 3.0 − 2.5 is exact in floats, and is recognised as such


def test_results_of_either_and_hull_contain_both_of_their_pieces() -> None:
    x = Bounded([-1.0, 0.0, 1.0], 0.1)
    pieces = either(x >= 0, x < 0, x, -x)
    assert pieces.value.tolist() == [1.0, 0.0, 1.0]
    assert (np.abs(pieces.value - 0.0)[1] + 0.1 <= pieces.error[1] + 1e-15).all()
    both = hull(Bounded(1.0, 0.5), Bounded(3.0, 0.25))
    assert 2.25 <= both.error <= 2.2501
    assert isinstance(hull(exact(np.inf), exact(np.inf)), Bounded)


def test_functions_such_as_zeros_like_shape_and_reshape_accept_bounded_arrays() -> None:
    assert np.zeros_like(X).error.tolist() == [0.0, 0.0, 0.0]
    assert np.ones_like(X).value.tolist() == [1.0, 1.0, 1.0]
    assert np.full_like(X, -np.inf).value.tolist() == [-np.inf] * 3
    assert (np.shape(X), np.ndim(X), np.size(X), len(X)) == ((3,), 1, 3, 3)
    assert np.size(SQUARE, 1) == 3
    assert SQUARE.T.shape == (3, 3)
    assert SQUARE.reshape(9).swapaxes(0, 0).ravel().shape == (9,)
    assert X.widen(0.25).error.tolist() == pytest.approx([0.75, 0.25, 0.25 + 1e-9])
    assert "Bounded" in repr(with_rounding(0.1))


def plant(patch: pytest.MonkeyPatch, mistake: str) -> None:
    """Plant a mistake that a derivation or its code may have."""
    fine = arithmetic.FLOAT64
    wrong = {
        "no-rounding": replace(fine, rounding=0.0),
        "half-rounding": replace(fine, rounding=arithmetic.UNIT / 8),
        "no-library": replace(fine, function=0.0),
        "no-underflow": replace(fine, underflow=0.0),
        "no-vanishing": replace(fine, vanishing=0.0),
    }
    if mistake in wrong:
        patch.setattr(arithmetic, "FLOAT64", wrong[mistake])
        for module in (array_module, elementary_operations, exponentials, products, sums):
            patch.setattr(module, "current", lambda: wrong[mistake])
        patch.setattr(sums, "FLOAT64", wrong[mistake])
    elif mistake == "tangent-of-exp":
        patch.setattr(exponentials, "rise", lambda x, e, power: power * e)
    elif mistake == "tangent-of-log":
        patch.setattr(exponentials, "fall", lambda e, above: np.where(above > 0, e / above, np.inf))
    elif mistake == "no-outward":
        for module in (array_module, elementary_operations, exponentials, products, sums):
            patch.setattr(module, "upward", lambda x, operations=0: x * (1 - 1e-15))
    elif mistake == "loose-bookkeeping-of-infinity":
        true = array_module.restore_invariants
        for module in (elementary_operations, exponentials, sums):
            patch.setattr(module, "restore_invariants", lambda v, e, infinite=None: true(v, e, lambda: np.isinf(v)))
    elif mistake == "maximum-of-one":
        patch.setattr(extremes, "_excess", lambda value, x, e: np.where(x == value, e, 0.0))
    else:
        raise AssertionError(mistake)


@pytest.mark.parametrize(
    ("mistake", "seen_by"),
    [
        ("no-rounding", ["multiply", "divide", "sum", "vecdot", "norm", "sqrt"]),
        ("half-rounding", ["multiply", "divide", "sqrt"]),
        ("no-library", ["exp", "expm1", "log", "log1p"]),
        ("no-underflow", ["multiply", "divide", "vecdot"]),
        ("no-vanishing", ["exp"]),
        ("tangent-of-exp", ["exp", "expm1"]),
        ("tangent-of-log", ["log", "log1p"]),
        ("no-outward", ["add", "sum"]),
        ("loose-bookkeeping-of-infinity", ["multiply", "exp", "square"]),
        ("maximum-of-one", ["maximum"]),
    ],
)
def test_planted_mistakes_are_detected(mistake: str, seen_by: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, mistake)
    by_name = {primitive.name: primitive for primitive in PRIMITIVES}
    assert [name for name in seen_by if not failures(by_name[name], seed=1, trials=20)] == []


def test_an_infinite_entry_widened_by_zero_stays_exact() -> None:
    result = exact([-np.inf, -np.inf, 1.0]).widen([0.0, 1.0, 1.0])
    assert result.value[0] == -np.inf
    assert result.error[0] == 0
    assert np.isinf(result.error[1])
    assert result.error[2] >= 1
