"""The array type: a float64 value and a proven bound on its error, entry by entry, through NumPy's protocols.

Invariants of each entry:

- the value is never NaN, the error never negative: |exact − value| ≤ error;
- an infinite value has the error 0: it is exactly that infinity (a masked logit, log 0);
- an infinite error means that nothing is known, not even the sign of the number or whether it is defined.

The function that computes value and error of a NumPy operation is its *rule*; two tables hold the rules, for ufuncs and
for other NumPy functions. An operation without a rule raises an error and never falls back to floats. Errors are upper
bounds, which include the roundings made in computing the errors themselves (:func:`upward`).

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
from theorems.bounded.arithmetic import LARGEST, current

Values = Any
"""A float64 array, or a NumPy scalar of the same dtype."""
Rule = Callable[..., Any]

UFUNCS: dict[tuple[np.ufunc, str], Rule] = {}
"""The function that computes value and error of a ufunc's result, by ufunc and method (such as ``"reduce"``)."""
FUNCTIONS: dict[Callable[..., Any], Rule] = {}
"""The functions that compute value and error of the results of other NumPy functions (such as ``np.sum``)."""


def for_ufunc(ufunc: np.ufunc, method: str = "__call__") -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule by which a ufunc acts on bounded arrays."""

    def enter(rule: Rule) -> Rule:
        UFUNCS[ufunc, method] = rule
        return rule

    return enter


def for_function(*functions: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule by which NumPy functions act on bounded arrays."""

    def enter(rule: Rule) -> Rule:
        for function in functions:
            FUNCTIONS[function] = rule
        return rule

    return enter


def exactly(x: Any) -> Values:
    """Convert ``x`` to float64 without rounding.

    Raises:
        TypeError: ``x`` is not numeric, or its dtype has numbers that float64 cannot represent.
        ValueError: ``x`` contains NaN, or integers beyond 2⁵³.
    """
    array = np.asarray(x)
    if array.dtype != np.float64:
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise TypeError(f"a bounded array takes real numbers of at most 64 bits, not {array.dtype}; convert them.")
        if array.dtype.kind in "iu" and ((array > 2**53) | (array < -(2**53))).any():
            raise ValueError("integers beyond 2^53 are not exact in float64.")
        array = array.astype(np.float64)
    if math.isnan(array.item()) if array.ndim == 0 else np.isnan(array).any():
        raise ValueError("a bounded array cannot contain NaN; replace the NaN first.")
    return array


class Bounded(np.lib.mixins.NDArrayOperatorsMixin):
    """An immutable array of numbers value ± error; a comparison is true only where it is certain.

    Args:
        value: real numbers, taken as exact; any shape.
        error: upper bounds of |exact number − value|, broadcast to the shape of ``value``.
    """

    __slots__ = ("error", "value")
    __hash__ = None  # type: ignore[assignment]

    value: np.ndarray
    error: np.ndarray

    def __init__(self, value: Any, error: Any = 0.0) -> None:
        """Copy value and error as read-only float64; refuse numbers that float64 would round, and negative errors."""
        if isinstance(value, Bounded) or isinstance(error, Bounded):
            raise TypeError("value and error must be plain numbers; call widen to increase a bounded array's error.")
        # A copy, so that later changes of the argument do not make the error wrong.
        self.value = np.array(exactly(value))
        self.error = np.array(np.broadcast_to(exactly(error), self.value.shape))
        if (self.error < 0).any():
            raise ValueError("an error is negative; give errors ≥ 0.")
        if (np.isinf(self.value) & (self.error > 0)).any():
            raise ValueError("an infinite value is exact, so its error must be 0.")
        self.value.flags.writeable = self.error.flags.writeable = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array, as NumPy's."""
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.value.ndim)

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(self.value.size)

    @property
    def T(self) -> Bounded:
        """The array with its axes reversed."""
        return from_trusted(self.value.T, self.error.T)

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return len(self.value)

    def __getitem__(self, index: Any) -> Bounded:
        """Return the entries at an index, with their errors."""
        return from_trusted(self.value[index], self.error[index])

    def __repr__(self) -> str:
        """Return the call that creates this array, with value and error."""
        return f"Bounded({self.value!r}, {self.error!r})"

    def __bool__(self) -> NoReturn:
        """Raise TypeError, because a bounded array has no truth value."""
        raise TypeError("a bounded array has no truth value; write a comparison, such as x > 0.")

    def __contains__(self, x: object) -> NoReturn:
        """Raise TypeError, because rounding may leave membership open."""
        raise TypeError("membership is not decided for bounded arrays; compare entries.")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Raise TypeError, because a conversion to floats would lose the error."""
        raise TypeError("converting a bounded array to floats would lose its error; use .value and .error.")

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        """Return NumPy, whose functions use the rules, so that code for array namespaces runs unchanged."""
        return np

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Apply the rule of a ufunc for bounded arrays; raise TypeError if there is none, or ``out=`` is given."""
        rule = UFUNCS.get((ufunc, method))
        if rule is None:
            suffix = "" if method == "__call__" else f".{method}"
            raise TypeError(f"numpy.{ufunc.__name__}{suffix} has no rule for bounded arrays.")
        if keywords.get("out") is not None:
            raise TypeError(f"numpy.{ufunc.__name__}: bounded arrays are immutable; write x = x + y, without out=.")
        with np.errstate(all="ignore"):
            return rule(*inputs, **keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        """Apply the rule of a NumPy function for bounded arrays; raise TypeError if there is none."""
        rule = FUNCTIONS.get(function)
        if rule is None:
            raise TypeError(f"{function.__module__}.{function.__name__} has no rule for bounded arrays.")
        with np.errstate(all="ignore"):
            return rule(*args, **keywords)

    def reshape(self, *shape: Any) -> Bounded:
        """Return the entries in another shape."""
        return from_trusted(self.value.reshape(*shape), self.error.reshape(*shape))

    def swapaxes(self, a: int, b: int) -> Bounded:
        """Return the array with the axes ``a`` and ``b`` swapped."""
        return from_trusted(self.value.swapaxes(a, b), self.error.swapaxes(a, b))

    def ravel(self) -> Bounded:
        """Return the entries in one dimension."""
        return from_trusted(self.value.ravel(), self.error.ravel())

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the sum of the entries along an axis, or of all of them."""
        return np.sum(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the mean of the entries along an axis, or of all of them."""
        return np.mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the largest entry along an axis, or of all of them."""
        return np.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the smallest entry along an axis, or of all of them."""
        return np.min(self, axis=axis, keepdims=keepdims)

    def widen(self, by: Any) -> Bounded:
        """Return the same values with errors increased by |by|, an error of the formula or a bound derived by hand."""
        more = np.abs(exactly(by))
        return restore_invariants(self.value, upward(self.error + more), lambda: more == 0)


_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def in_floats() -> Iterator[None]:
    """Let :func:`exact` and :func:`with_rounding` return plain floats inside the block.

    A search can then evaluate the formulas of a proof at the speed of floats. Nothing is proven inside the block, and
    NumPy does not warn there, because a search may reach points where floats overflow.
    """
    token = _plain.set(True)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _plain.reset(token)


def exact(x: Any) -> Any:
    """Return floats as a bounded array with the error 0; inside :func:`in_floats`, as a plain array.

    A rounded constant, such as ``math.log(2)``, is not exact: use :func:`with_rounding`, or ``np.log(exact(2))``.
    """
    return np.asarray(x, dtype=np.float64) if _plain.get() else Bounded(x)


def with_rounding(x: Any) -> Any:
    """Return floats with the error of one rounding in float64, or, within :func:`.arithmetic.spacing`, by a kernel."""
    if _plain.get():
        return np.asarray(x, dtype=np.float64)
    value = exactly(x)
    now = current()
    lost = np.where((value == 0) | np.isinf(value), 0.0, now.rounding * np.abs(value) + now.underflow)
    return Bounded(value, upward(np.where(np.isinf(value), 0.0, lost)))


def from_trusted(value: Any, error: Any) -> Bounded:
    """Return a bounded array of a value and an error that satisfy the invariants and that no other code modifies."""
    new = object.__new__(Bounded)
    new.value, new.error = np.asarray(value), np.asarray(error)
    new.value.flags.writeable = new.error.flags.writeable = False
    return new


def value_of(x: Any) -> Values:
    """Return the values of a bounded array without their errors; plain numbers as an array."""
    return x.value if isinstance(x, Bounded) else np.asarray(x)


def parts(x: Any) -> tuple[Values, Values]:
    """Return values and errors of a bounded array; plain numbers have the error 0."""
    if isinstance(x, Bounded):
        return x.value, x.error
    return exactly(x), np.zeros(())


def upward(x: Values, operations: Any = 8) -> Values:
    """Increase x, computed by ``operations`` roundings from numbers ≥ 0, to an upper bound of the exact value.

    With the unit roundoff u and k operations, each of which decreases x at most by a factor 1 − u, 1 + (k + 4) 2u
    exceeds (1 − u)^{−k} as long as k u < 1/4. Sums of subnormal numbers are exact; the loss of products below the
    normal range is part of ``Arithmetic.underflow``.
    """
    return x * (1 + (operations + 4) * EPS)


def restore_invariants(value: Values, error: Values, infinite: Callable[[], Values] | None = None) -> Bounded:
    """Return a bounded array in which the invariants of the module hold again.

    The error becomes infinite (nothing is known) where the value is NaN, or where the value or the kernel's number
    overflows.

    Args:
        value: the computed value, which may be infinite or NaN.
        error: its error, broadcast to the shape of ``value``.
        infinite: returns the mask of the entries whose infinite value is exact; called only where a value or an error
            is out of range.
    """
    value, error = np.asarray(value), np.asarray(error)
    if error.shape != value.shape:
        error = np.broadcast_to(error, value.shape)
    in_range = np.abs(value) + error <= current().largest
    if in_range.all():
        return from_trusted(value, error)
    certain = np.isinf(value) & (infinite() if infinite is not None else False)
    finite = np.where(np.isnan(value), 0.0, np.minimum(np.maximum(value, -LARGEST), LARGEST))
    return from_trusted(np.where(certain, value, finite), np.where(certain, 0.0, np.where(in_range, error, np.inf)))
