"""pytorch/pytorch PR #169222: a last block with fewer than 32 keys reads on to the 32nd.

On MPS, in decoding: L ≤ 8, L ≤ T, width 64, 96 or 128, not causal, T no multiple of 32 (and here no mask). What lies
behind the keys of a head is, as in memory, the next head's; behind the last head, here, zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import BLOCK, Tiled, with_sdpa


class Steps(Tiled):
    """Blocks that are always full."""

    by_autograd = True

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        decoding = q.shape[-2] <= min(8, k.shape[-2]) and q.shape[-1] in (64, 96, 128)
        if not decoding or self.causal or self.mask is not None:
            return super().forward(q, k, v)
        return super().forward(q, read_on(k), read_on(v))


def read_on(x: Tensor) -> Tensor:
    """Each head with the rows behind it, up to a multiple of 32."""
    t = x.shape[-2]
    missing = -t % BLOCK
    memory = torch.cat([x.reshape(-1, x.shape[-1]), x.new_zeros(missing, x.shape[-1])])
    starts = torch.arange(0, x.shape[:-2].numel() * t, t, device=x.device).reshape(x.shape[:-2])
    return memory[starts[..., None] + torch.arange(t + missing, device=x.device)]


attention = with_sdpa(Steps)
