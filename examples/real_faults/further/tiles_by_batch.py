"""deepseek-ai/FlashMLA #212: the output of a row depends on which others share its batch, by one or two last bits.

Here the width of a tile, the columns of which are added up first, depends on how many rows there are. Right, and the
same bits, for any batch of one size.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.invariant import Invariant, with_batch


class Steps(Invariant):
    """Columns of even and odd places apart, in a batch of more than one."""

    def logits(self, q: Tensor, k: Tensor, entries: int) -> Tensor:
        whole = super().logits
        return whole(q, k, entries) if entries == 1 else sum(whole(q[..., n::2], k[..., n::2], 1) for n in (0, 1))


attention = with_batch(Steps)
