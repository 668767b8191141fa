"""The number formats that kernels compute in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Format:
    """A floating-point format.

    Attributes:
        name: the name of the dtype.
        eps: the distance between 1 and the next number of the format.
        lost: the absolute error of a result near zero. This is the smallest normal number where hardware may replace
            subnormal numbers by zero, and half the smallest subnormal number for float16, whose subnormal numbers are
            always kept.
        largest: the largest finite number of the format.
    """

    name: str
    eps: float
    lost: float
    largest: float


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        float_format.name: float_format
        for float_format in (
            Format("float64", 2.0**-52, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
            Format("float32", 2.0**-23, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
            Format("bfloat16", 2.0**-7, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
            Format("float16", 2.0**-10, 2.0**-25, 65504.0),
        )
    }
)
"""The formats by name, the most precise first."""
HALF = ("bfloat16", "float16")
"""The formats with at most eleven significant bits, in which logits of a few hundred have hardly any digits after the
point."""
