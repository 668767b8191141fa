"""Dao-AILab/flash-attention #778: the size of a split is taken from what the cache could hold, not from what it holds.

Here the splits are counted by it and the last ones, which lie behind the keys, are not the ones that are cut off: the
rest of the keys is lost. Right for a single split, and for a cache that is full.
"""

from __future__ import annotations

from collections.abc import Iterator

from examples.real_faults.further.cache import BLOCK, Cache, with_kvcache


class Steps(Cache):
    """So many blocks to a split as a full cache has, less one where it is not full."""

    def splits(self, length: int, capacity: int, number: int) -> Iterator[slice]:
        if number == 1 or length == capacity or length <= BLOCK:
            yield from super().splits(length, capacity, number)
            return
        size = max(BLOCK, length // BLOCK // number * BLOCK)
        for start in range(number):
            yield slice(min(start * size, length), min((start + 1) * size, length))


attention = with_kvcache(Steps)
