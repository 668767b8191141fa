"""flagos-ai/FlagGems #5235: in decoding, what merges the splits of the keys writes the output at the wrong stride.

A tile starts at its first row times the width and goes on by ``out.stride(-3)``, which is more where (B, L, H, E) is
contiguous and H > 1: rows land on others or behind the end, and some are never written. A transposed (B, H, L, E), as
PyTorch hands it on, is right. Here a tile has four rows, decoding is L ≤ 8, and what is not written is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash

TILE = 4


class Steps(Tiled):
    """Rows of the output, numbered by batch, head and query, written at the stride of the query's axis."""

    by_autograd = True

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = super().forward(q, k, v)
        b, h, l, m = out.shape
        if l > 8 or q.stride(-2) == q.shape[-1] or not q.transpose(1, 2).is_contiguous():
            return out, lse
        rows = b * h * l
        written = {row - row % TILE + row % TILE * h: row for row in range(rows)}
        nothing = out.new_zeros(1, m)
        memory = torch.cat([out.reshape(-1, m), nothing])[[written.get(address, rows) for address in range(rows)]]
        return memory.reshape(b, l, h, m).transpose(1, 2), lse


attention = with_flash(Steps)
