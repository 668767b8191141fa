"""hw-native-sys/pypto PR #470: two pages are read at once, from where the first of them lies.

A table need not name pages that lie side by side. Right where it does, for one page, and for a cache in one piece.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.cache import Cache, with_kvcache


class Steps(Cache):
    """The second page of a pair is the one behind the first."""

    def keys(self, cache: Tensor, table: Tensor | None, length: int) -> Tensor:
        if table is not None:
            behind = torch.clamp(table[0::2] + 1, max=len(cache) - 1)
            table = torch.stack([table[0::2], behind], dim=-1).flatten()[: len(table)]
        return super().keys(cache, table, length)


attention = with_kvcache(Steps)
