"""Arrays that carry their own rounding, so that a formula on them is its own error analysis.

    log_weights = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)

is what it was, and knows how far it may be from the truth; inside ``with spacing(2**-23)`` also how far the same
formula in float32 may be. What NumPy function has no rule here raises.

To beware of:

- Floats are exact unless said otherwise: ``math.log(T)`` is not log T, ``np.log(exact(T))`` is; see also
  :func:`with_rounding`.
- ``a >= b`` is where it is sure, so ``~(a >= b)`` is no a < b: :func:`either`, :func:`possibly_at_least`.
- A formula that is an approximation, such as a series cut off, is taken at its word: :meth:`Bounded.widen` adds the
  rest.
- :func:`spacing` speaks about the formula as written: a kernel that computes the same by another one is not covered.
"""

from theorems.bounded import basic, comparisons, exponentials, extremes, moves, products, sums
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

_RULES = (basic, comparisons, exponentials, extremes, moves, products, sums)
"""Imported for the rules that they enter."""
