"""Arrays that carry bounds of their rounding errors; evaluating a formula on them also bounds the formula's error.

On such arrays the formula

    log_weights = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)

computes the same values as on floats, and a bound on their distance from the exact result; inside ``with
spacing(2**-23)`` the bound also covers the same formula in float32. A NumPy function for which this package has no rule
raises a TypeError.

Pitfalls:

- Floats count as exact, so the rounding error of ``math.log(T)`` is lost; ``np.log(exact(T))`` carries it. For floats
  that were rounded use :func:`with_rounding`.
- ``a >= b`` is True only where it is certain, so ``~(a >= b)`` does not mean a < b; use :func:`either` or
  :func:`possibly_at_least`.
- An approximate formula, such as a truncated series, is taken as exact: add its error with :meth:`Bounded.widen`.
- :func:`spacing` covers the formula as written; a kernel that uses another formula for the same number is not covered.
"""

from theorems.bounded import comparisons, elementary_operations, exponentials, extremes, products, rearrangements, sums
from theorems.bounded.arithmetic import spacing
from theorems.bounded.array import Bounded, exact, in_floats, value_of, with_rounding
from theorems.bounded.comparisons import either, hull, possibly_at_least

__all__ = [
    "Bounded",
    "either",
    "exact",
    "hull",
    "in_floats",
    "possibly_at_least",
    "spacing",
    "value_of",
    "with_rounding",
]

_RULES = (comparisons, elementary_operations, exponentials, extremes, products, rearrangements, sums)
"""Modules that are imported only because they register rules when they are imported."""
