"""What one rounding costs: the arithmetic in which a formula on bounded arrays is taken to be evaluated.

A bounded array's value is always computed in float64. Its error covers the exact number; inside a block
``with spacing(eps)`` also whatever an evaluation of the same formula gives in numbers of that spacing at one, with its
sums in any order. Then each operation costs both: the unit roundoff of the value and that of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from reference_attention.floats import EPS

UNIT = EPS / 2
"""Unit roundoff of float64."""
NORMAL = 2.0**-1022
"""The smallest normal float64."""
LARGEST = (2 - EPS) * 2.0**1023
"""The largest float64."""
LIBRARY = 4.0
"""Units in the last place by which NumPy's exp, expm1, log and log1p may be off: the accuracy to which NumPy holds its
vectorised ones (``numpy/_core/tests/test_umath_accuracy.py`` asks 2 to 4); the tests measure less than one."""


@dataclass(frozen=True)
class Arithmetic:
    """The cost of operations, per value of float64 and kernel's number together.

    Attributes:
        rounding: relative error of one correctly rounded operation.
        theirs: the part of it that is the kernel's; 0 where there is none.
        function: relative error of one exp, expm1, log or log1p.
        underflow: absolute error of one product, quotient or logarithm near zero.
        vanishing: the same of one exponential: results below the normal range count as lost.
        flushed: the same of one sum; float64's own sums never underflow.
        normal: what the kernel flushes to zero; 0 where there is none.
        largest: beyond it the kernel, or float64, overflows.
    """

    rounding: float = UNIT
    theirs: float = 0.0
    function: float = LIBRARY * EPS
    # A few units of 2^−1074 would do, for the value and the error's own products; arithmetic with those is a hundred
    # times slower.
    underflow: float = NORMAL
    vanishing: float = 2 * NORMAL
    flushed: float = 0.0
    normal: float = 0.0
    largest: float = LARGEST


FLOAT64 = Arithmetic()
"""No kernel: the error is that of the float64 value against the exact number."""

_current: ContextVar[Arithmetic] = ContextVar("arithmetic", default=FLOAT64)


def current() -> Arithmetic:
    """The arithmetic of this block."""
    return _current.get()


def of_kernel(eps: float, library: float, lost: float | None = None) -> Arithmetic:
    """That of a kernel with numbers of spacing ``eps`` at one, which flushes what is not normal to zero.

    Spacings of float32 and coarser have the exponents of float32, as bfloat16 and TF32 do, finer ones those of float64,
    unless it is said what is lost near zero.
    """
    if not EPS <= eps < 0.5:
        raise ValueError(f"spacing {eps}: from that of float64, {EPS}, up to 1/2; values are float64 themselves.")
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
    """Inside the block errors also cover an evaluation in numbers of spacing ``eps`` at one.

    Args:
        eps: 2⁻⁵² for float64, 2⁻²³ for float32, 2⁻⁷ for bfloat16. With 2⁻⁵² somebody else's float64 evaluation is
            covered.
        library: units in the last place by which its exponential and logarithm may be off.
        lost: see :class:`.formats.Format`; by default that of float32 or float64.

    What is cached (a ``cached_property``, say) keeps the arithmetic in which it was first computed.
    """
    with _within(of_kernel(eps, library, lost)):
        yield


@contextmanager
def without_kernel() -> Iterator[None]:
    """Inside the block errors cover the exact function of whatever the operands contain: a rule counts a kernel's
    roundings itself.
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
