"""HKUSTDial/flash-sparse-attention PR #213: with more keys than queries the loop over keys ends too soon.

Its bound is that of as many keys as queries. Here a row sees no key behind the block of 8 in which it lies itself.
Right with as many queries as keys, and with up to 8 keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.mlx import ByLonger, with_mlx


class Steps(ByLonger):
    """Keys behind the row's own block lie ahead of it."""

    def ahead(self, rows: int, keys: int) -> Tensor:
        ends = torch.arange(rows)[:, None] // 8 * 8 + 8
        return super().ahead(rows, keys).masked_fill(torch.arange(keys) >= ends, 1)


attention = with_mlx(Steps)
