"""tile-ai/tilelang PR #2010: the keys of a split are their number divided by that of splits, and the rest is lost.

Right where the number of splits divides that of keys, and without splits.
"""

from __future__ import annotations

from collections.abc import Iterator

from examples.real_faults.further.cache import Cache, with_kvcache


class Steps(Cache):
    """Rounded down."""

    def splits(self, length: int, capacity: int, number: int) -> Iterator[slice]:
        size = length // number
        for start in range(number):
            yield slice(start * size, (start + 1) * size)


attention = with_kvcache(Steps)
