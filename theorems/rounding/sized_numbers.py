"""Numbers of any magnitude with bounds of their rounding errors: bounded arrays, and the logarithms of their units.

At large norms of the prompt, differences of risks can be e^{−1000} and less, of either sign, which float64 cannot
represent. Two such numbers are added, subtracted and compared in the larger of their units: if one of them underflows
in this unit, it is far below the rounding error of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from theorems.bounded import Bounded, exact
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.equality import equal


@dataclass(frozen=True, eq=False)
class Sized:
    """Numbers x e^{log_unit} with bounds of their rounding errors.

    Attributes:
        x: the numbers in their units, (*b).
        log_unit: the logarithm of the unit of each number, floats taken as exact, (*b); −∞ where x is exactly 0.
    """

    x: Bounded
    log_unit: Float64[np.ndarray, "*b"]

    @classmethod
    def of(cls, x: Bounded, log_unit: Float64[np.ndarray, "*b"]) -> Sized:
        """Return the numbers x e^{log_unit}; the log_unit of exact zeros is −∞."""
        return cls(x, np.where((x.value == 0) & (x.error == 0), -np.inf, log_unit))

    @classmethod
    def exp(cls, logarithm: Bounded) -> Sized:
        """Return the numbers e^{logarithm}."""
        unit = np.where(np.isfinite(logarithm.value), logarithm.value, 0.0)
        return cls.of(np.exp(logarithm - unit), unit)

    @classmethod
    def stack(cls, parts: Sequence[Sized]) -> Sized:
        """Return several arrays of such numbers, stacked along a new first axis."""
        x: Any = np.stack([part.x for part in parts])
        return cls(x, np.stack([part.log_unit for part in parts]))

    def to(self, log_unit: Any) -> Bounded:
        """Return the numbers in units of e^{``log_unit``}, as a bounded array."""
        converted: Bounded = self.x * np.exp(exact(self.log_unit) - log_unit)
        return converted

    @property
    def log(self) -> Bounded:
        """The logarithms of the numbers, which must all be positive beyond their error bounds."""
        logarithm: Bounded = np.log(self.x) + exact(self.log_unit)
        return logarithm

    def __neg__(self) -> Sized:
        """Return the numbers with the opposite sign, in the same units."""
        return Sized(-self.x, self.log_unit)

    def __add__(self, other: Sized) -> Sized:
        """Return the sums of the numbers, each in the larger unit of its two terms."""
        unit = larger_unit(self, other)
        return Sized.of(self.to(unit) + other.to(unit), unit)

    def __mul__(self, factor: Any) -> Sized:
        """Return the numbers times ``factor``, in the same units."""
        return Sized.of(self.x * factor, self.log_unit)

    def __sub__(self, other: Sized) -> Sized:
        """Return the differences of the numbers, each in the larger unit of its two terms."""
        return self + -other

    def __iter__(self) -> Iterator[Sized]:
        """Iterate over the first axis."""
        return (self[k] for k in range(len(self.log_unit)))

    def __getitem__(self, index: Any) -> Sized:
        """Return the numbers at an index, with their units."""
        return Sized(self.x[index], self.log_unit[index])


def larger_unit(a: Sized, b: Sized) -> Float64[np.ndarray, "..."]:
    """Return the larger log_unit of a and b, entry by entry; 0 where both a and b are 0."""
    unit = np.maximum(a.log_unit, b.log_unit)
    return np.where(np.isfinite(unit), unit, 0.0)


def at_least_in_units(name: str, form: Form, left: Sized, right: Sized, points: str = "point") -> Claim:
    """Return the claim that left ≥ right at every point, compared at each point in the larger unit of the two sides.

    Points at which the rounding error is at least as large as both sides are left out, because the claim could not fail
    there. If no point remains, the claim is undecided.
    """
    unit = larger_unit(left, right)
    sides: Any = np.broadcast_arrays(left.to(unit), right.to(unit))
    above, below = sides
    resolved = np.maximum(np.abs(above.value), np.abs(below.value)) > (above - below).error
    if not resolved.any():
        why = f"at every {points} the rounding error exceeds the risks compared: the limit lies beyond float64"
        return undecided_claim(name, why, form)
    return at_least(name, form, above[resolved], below[resolved], points=points)


def sized_equal(name: str, left: Sized, right: Sized, points: str = "point") -> Claim:
    """Return the claim that left = right at every point, compared at each point in the larger unit of the two sides."""
    unit = larger_unit(left, right)
    return equal(name, left.to(unit), right.to(unit), points=points)
