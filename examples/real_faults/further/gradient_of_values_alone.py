"""tenstorrent/tt-metal PR #45621: the gradient of a latent key is put together of that of the key's own columns and dV.

There the columns of keys and values are made apart, and that is right. Here the values are columns of the key, and what
logits have to do with these is left out. Right forward, for the query, and for columns that are no values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.mla import Latent, with_latent


class Steps(Latent):
    """Logits without a gradient for the first columns."""

    def of_logits(self, keys: Tensor, width: int) -> Tensor:
        return torch.cat([keys[..., :width].detach(), keys[..., width:]], dim=-1)


attention = with_latent(Steps)
