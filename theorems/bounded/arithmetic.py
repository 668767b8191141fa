"""Rounding errors of single operations, in float64 and in the number format of a kernel that is compared.

A bounded array's value is always computed in float64. Its error bounds the distance from the value to the exact number.
Inside a block ``with spacing(eps)`` the error also bounds the distance to the result of a kernel that evaluates the
same formula in its own format, with sums in any order; ``eps`` is the distance between 1 and the next number of this
format. The error of each operation then includes the unit roundoff of float64 and that of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from reference_attention.floats import EPS

UNIT = EPS / 2
"""Unit roundoff of float64: the largest relative error of one correctly rounded operation."""
NORMAL = 2.0**-1022
"""The smallest normal float64."""
LARGEST = (2 - EPS) * 2.0**1023
"""The largest float64."""
LIBRARY = 4.0
"""The largest error of NumPy's exp, expm1, log and log1p, in units in the last place. NumPy's tests
(``numpy/_core/tests/test_umath_accuracy.py``) allow 2 to 4 units; in our tests the errors are below one."""


@dataclass(frozen=True)
class Arithmetic:
    """Largest rounding errors of single operations; they cover the float64 value and a kernel's number, if any.

    Attributes:
        rounding: relative error of one correctly rounded operation.
        theirs: the part of ``rounding`` that is the kernel's; 0 without a kernel.
        function: relative error of one exp, expm1, log or log1p.
        underflow: absolute error of one product, quotient or logarithm near zero.
        vanishing: absolute error of one exponential near zero, where results below the normal range may be lost.
        flushed: absolute error of one sum near zero in the kernel; float64's own sums never underflow.
        normal: the size below which the kernel may replace numbers by zero; 0 without a kernel.
        largest: the number beyond which the kernel, or without a kernel float64, overflows.
    """

    rounding: float = UNIT
    theirs: float = 0.0
    function: float = LIBRARY * EPS
    # A few units of 2^−1074 would be a sharper bound of the underflow, but computing with such subnormal numbers is a
    # hundred times slower.
    underflow: float = NORMAL
    vanishing: float = 2 * NORMAL
    flushed: float = 0.0
    normal: float = 0.0
    largest: float = LARGEST


FLOAT64 = Arithmetic()
"""The arithmetic without a kernel: errors bound the distance from the float64 value to the exact number."""

_current: ContextVar[Arithmetic] = ContextVar("arithmetic", default=FLOAT64)


def current() -> Arithmetic:
    """Return the arithmetic of the innermost enclosing ``with spacing(…)`` block; outside of any, :data:`FLOAT64`."""
    return _current.get()


def of_kernel(eps: float, library: float, lost: float | None = None) -> Arithmetic:
    """Return the arithmetic of a kernel with spacing ``eps`` at 1, which may flush subnormal numbers to zero.

    Formats with float32's spacing or a coarser one are assumed to have the exponent range of float32, as bfloat16 and
    TF32 do, and finer formats that of float64.

    Args:
        eps: the distance between 1 and the next number of the kernel's format.
        library: the largest error of the kernel's exponentials and logarithms, in units in the last place.
        lost: the absolute error of a result near zero; by default derived from the exponent range.
    """
    if not EPS <= eps < 0.5:
        raise ValueError(f"spacing {eps} is out of range; give one from {EPS}, that of float64, to below 1/2.")
    short = eps >= 2.0**-23
    normal = lost if lost is not None else 2.0**-126 if short else NORMAL
    return Arithmetic(
        rounding=UNIT + eps / 2,
        theirs=eps / 2,
        function=LIBRARY * EPS + library * eps,
        underflow=FLOAT64.underflow + normal,
        vanishing=FLOAT64.vanishing + normal,
        flushed=normal,
        normal=normal,
        largest=(2 - eps) * 2.0**127 if short else LARGEST,
    )


@contextmanager
def spacing(eps: float, library: float = LIBRARY, *, lost: float | None = None) -> Iterator[None]:
    """Let errors inside the block also cover an evaluation in a format with the spacing ``eps`` at 1.

    Values that are cached, as by ``cached_property``, keep the errors with which they were first computed.

    Args:
        eps: the distance between 1 and the next number of the format: 2⁻⁵² for float64, 2⁻²³ for float32, 2⁻⁷ for
            bfloat16. For 2⁻⁵² the errors cover every other float64 evaluation of the formula.
        library: the largest error of exponentials and logarithms in such numbers, in units in the last place.
        lost: the absolute error of a result near zero, see :class:`.formats.Format`; by default derived from ``eps``.
    """
    with _within(of_kernel(eps, library, lost)):
        yield


@contextmanager
def without_kernel() -> Iterator[None]:
    """Let errors inside the block cover the rounding of float64 only, for a rule that adds the kernel's errors itself.

    Errors that the operands already carry still propagate.
    """
    with _within(FLOAT64):
        yield


@contextmanager
def _within(arithmetic: Arithmetic) -> Iterator[None]:
    token = _current.set(arithmetic)
    try:
        yield
    finally:
        _current.reset(token)
