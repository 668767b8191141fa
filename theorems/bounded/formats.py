"""The number formats that kernels compute in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Format:
    """A floating-point format.

    Attributes:
        name: that of its dtype.
        eps: spacing at one.
        lost: what a result near zero may be off by: the smallest normal number where hardware flushes, half the
            smallest subnormal of float16, which nobody flushes.
        largest: its largest number.
    """

    name: str
    eps: float
    lost: float
    largest: float


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        one.name: one
        for one in (
            Format("float64", 2.0**-52, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
            Format("float32", 2.0**-23, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
            Format("bfloat16", 2.0**-7, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
            Format("float16", 2.0**-10, 2.0**-25, 65504.0),
        )
    }
)
"""By name, finest first."""
HALF = ("bfloat16", "float16")
"""Of at most eleven bits: logits of a few hundred have no digits after the point."""
