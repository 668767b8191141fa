"""Arrays that carry bounds of their rounding errors, so that a formula on them is its own error analysis.

    log_weights = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)

computes what it did on floats, and also how far the result may be from the exact one; inside
``with spacing(2**-23)`` also how far the same formula in float32 may be. A NumPy function without a rule here raises.

To beware of:

- Floats are exact unless said otherwise: ``math.log(T)`` is not log T, ``np.log(exact(T))`` is; see also
  :func:`with_rounding`.
- ``a >= b`` is True only where it is certain, so ``~(a >= b)`` does not mean a < b: :func:`either`,
  :func:`possibly_at_least`.
- A formula that is an approximation, such as a series cut off, is taken as exact: :meth:`Bounded.widen` adds the
  rest.
- :func:`spacing` speaks about the formula as written: a kernel that computes the same by another one is not covered.
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
"""The modules that are imported for the rules that they register."""
