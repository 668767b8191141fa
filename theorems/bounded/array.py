"""The array type: a float64 value and a proven bound on its error, elementwise, through NumPy's protocols.

Invariants, entry by entry:

- the value is never NaN, the error never negative: |exact − value| ≤ error;
- an infinite value has the error 0: it is exactly that infinity (a masked logit, log 0);
- an infinite error says that nothing is known: not the size, not the sign, not whether the number is defined at all.

Every operation is a *rule* in one of two tables, by NumPy function; what has no rule raises, it never falls back to
floats. Errors are upper bounds including the rounding of their own arithmetic (:func:`upward`).

Reference: N. Higham, *Accuracy and Stability of Numerical Algorithms*, Section 3.3 (running error analysis).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from reference_attention.floats import EPS
from reference_attention.former_name import FormerName
from theorems.bounded.arithmetic import LARGEST, current

Values = Any
"""A float64 array, or a NumPy scalar of it."""
Rule = Callable[..., Any]

UFUNCS: dict[tuple[np.ufunc, str], Rule] = {}
"""(ufunc, method) → rule."""
FUNCTIONS: dict[Callable[..., Any], Rule] = {}
"""Function with dispatch (``np.sum``, ``np.linalg.norm``) → rule."""


def for_ufunc(ufunc: np.ufunc, method: str = "__call__") -> Callable[[Rule], Rule]:
    """Make the decorated function the rule of that ufunc."""

    def enter(rule: Rule) -> Rule:
        UFUNCS[ufunc, method] = rule
        return rule

    return enter


def for_function(*functions: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Make the decorated function the rule of these NumPy functions."""

    def enter(rule: Rule) -> Rule:
        for function in functions:
            FUNCTIONS[function] = rule
        return rule

    return enter


def exactly(x: Any) -> Values:
    """``x`` as float64 without any loss.

    Raises:
        TypeError: a dtype whose numbers may not be float64s, or no numbers.
        ValueError: NaN, or integers beyond 2⁵³.
    """
    array = np.asarray(x)
    if array.dtype != np.float64:
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise TypeError(f"a bounded array takes real numbers of at most 64 bits as exact, not {array.dtype}.")
        if array.dtype.kind in "iu" and ((array > 2**53) | (array < -(2**53))).any():
            raise ValueError("integers beyond 2^53 are not exact in float64.")
        array = array.astype(np.float64)
    if math.isnan(array.item()) if array.ndim == 0 else np.isnan(array).any():
        raise ValueError("NaN has no place in a bounded array: decide first what a result that is no number means.")
    return array


class Bounded(np.lib.mixins.NDArrayOperatorsMixin):
    """value ± error, elementwise. Immutable; a comparison is true only where it surely is.

    Args:
        value: real numbers, taken exactly; any shape.
        error: ≥ 0, broadcast to the value's shape.
    """

    __slots__ = ("error", "value")
    __hash__ = None  # type: ignore[assignment]

    value: np.ndarray
    error: np.ndarray

    def __init__(self, value: Any, error: Any = 0.0) -> None:
        if isinstance(value, Bounded) or isinstance(error, Bounded):
            raise TypeError("value and error are plain numbers; a bounded array has its error already.")
        # A copy, so that nobody changes the value behind the error's back.
        self.value = np.array(exactly(value))
        self.error = np.array(np.broadcast_to(exactly(error), self.value.shape))
        if (self.error < 0).any():
            raise ValueError("an error is negative.")
        if (np.isinf(self.value) & (self.error > 0)).any():
            raise ValueError("an infinite value is exact or is none: its error must be 0.")
        self.value.flags.writeable = self.error.flags.writeable = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        return int(self.value.ndim)

    @property
    def size(self) -> int:
        return int(self.value.size)

    @property
    def T(self) -> Bounded:
        return from_trusted(self.value.T, self.error.T)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Bounded:
        return from_trusted(self.value[index], self.error[index])

    def __repr__(self) -> str:
        return f"Bounded({self.value!r}, {self.error!r})"

    def __bool__(self) -> NoReturn:
        raise TypeError("a bounded array is neither true nor false; compare it.")

    def __contains__(self, x: object) -> NoReturn:
        raise TypeError("membership is not decided for bounded arrays; compare entries.")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError("a bounded array is not turned into floats, its error would be lost; take .value and .error.")

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        """NumPy itself, whose functions come back here: a formula on an array namespace runs as it is."""
        return np

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        rule = UFUNCS.get((ufunc, method))
        if rule is None:
            how = "" if method == "__call__" else f".{method}"
            raise TypeError(f"numpy.{ufunc.__name__}{how} has no rule for bounded arrays.")
        if keywords.get("out") is not None:
            raise TypeError(f"numpy.{ufunc.__name__}: bounded arrays are immutable; write x = x + y, and no out=.")
        with np.errstate(all="ignore"):
            return rule(*inputs, **keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        rule = FUNCTIONS.get(function)
        if rule is None:
            raise TypeError(f"{function.__module__}.{function.__name__} has no rule for bounded arrays.")
        with np.errstate(all="ignore"):
            return rule(*args, **keywords)

    def reshape(self, *shape: Any) -> Bounded:
        return from_trusted(self.value.reshape(*shape), self.error.reshape(*shape))

    def swapaxes(self, a: int, b: int) -> Bounded:
        return from_trusted(self.value.swapaxes(a, b), self.error.swapaxes(a, b))

    def ravel(self) -> Bounded:
        return from_trusted(self.value.ravel(), self.error.ravel())

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        return np.sum(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return np.mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        return np.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        return np.min(self, axis=axis, keepdims=keepdims)

    def widen(self, by: Any) -> Bounded:
        """The same values, each off by so much more: a truncation or a step that is argued by hand."""
        more = np.abs(exactly(by))
        return restore_invariants(self.value, upward(self.error + more), lambda: more == 0)

    widened = FormerName("widen")


_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def in_floats() -> Iterator[None]:
    """Inside the block :func:`exact` and :func:`with_rounding` give plain floats: for a search by the same formulas.

    Nothing is proven there, and NumPy does not warn: a search may go where floats end.
    """
    token = _plain.set(True)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _plain.reset(token)


def exact(x: Any) -> Any:
    """Floats taken as they are. A rounded constant (``math.log(2)``) is not: :func:`with_rounding`, or its formula."""
    return np.asarray(x, dtype=np.float64) if _plain.get() else Bounded(x)


def with_rounding(x: Any) -> Any:
    """Floats that were each rounded once from their exact value, or that a kernel rounds to its own numbers."""
    if _plain.get():
        return np.asarray(x, dtype=np.float64)
    value = exactly(x)
    now = current()
    lost = np.where((value == 0) | np.isinf(value), 0.0, now.rounding * np.abs(value) + now.underflow)
    return Bounded(value, upward(np.where(np.isinf(value), 0.0, lost)))


def from_trusted(value: Any, error: Any) -> Bounded:
    """Value and error that satisfy the invariants already, and are nobody else's to write to."""
    new = object.__new__(Bounded)
    new.value, new.error = np.asarray(value), np.asarray(error)
    new.value.flags.writeable = new.error.flags.writeable = False
    return new


def value_of(x: Any) -> Values:
    """The value of an operand, bounded or plain."""
    return x.value if isinstance(x, Bounded) else np.asarray(x)


def parts(x: Any) -> tuple[Values, Values]:
    """Value and error of an operand; what is not bounded is exact."""
    if isinstance(x, Bounded):
        return x.value, x.error
    return exactly(x), np.zeros(())


def upward(x: Values, operations: Any = 8) -> Values:
    """x, computed by so many operations on numbers ≥ 0, made an upper bound in spite of their rounding.

    Each loses at most a factor 1 − u; 1 + (k + 4) 2u is above (1 − u)^{−k} as long as k u < 1/4. Subnormal sums are
    exact, what products lose below the normal range is part of ``Arithmetic.underflow``.
    """
    return x * (1 + (operations + 4) * EPS)


def restore_invariants(value: Values, error: Values, infinite: Callable[[], Values] | None = None) -> Bounded:
    """The result of a rule, invariants restored: NaN, overflow of value or kernel and infinite errors become unknown.

    Args:
        infinite: where an infinite value is the exact one; asked only if there is any.
    """
    value, error = np.asarray(value), np.asarray(error)
    if error.shape != value.shape:
        error = np.broadcast_to(error, value.shape)
    known = np.abs(value) + error <= current().largest
    if known.all():
        return from_trusted(value, error)
    certain = np.isinf(value) & (infinite() if infinite is not None else False)
    finite = np.where(np.isnan(value), 0.0, np.minimum(np.maximum(value, -LARGEST), LARGEST))
    return from_trusted(np.where(certain, value, finite), np.where(certain, 0.0, np.where(known, error, np.inf)))
