"""sgl-project/sgl-flash-attn PR #43: into how many splits the keys are cut depends on all entries of the batch.

The same sequence is added up in another order with others beside it. Right, and the same bits, for any batch of one
size.
"""

from __future__ import annotations

from examples.real_faults.further.invariant import Invariant, with_batch


class Steps(Invariant):
    """The more entries there are, the less splits."""

    def split(self, entries: int, keys: int) -> int:
        return 2 + 4 * entries


attention = with_batch(Steps)
