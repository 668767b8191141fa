"""gittensor-ai-lab/sparkinfer #425: of wide heads the first columns of the output are computed, and no others.

There 128 of 256, here 256 of 512. Right where values have 256 columns at most.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.flash_mla import with_flash_mla
from examples.real_faults.further.mla import Latent


class Steps(Latent):
    """The others are zero."""

    def values(self, keys: Tensor, width: int) -> Tensor:
        found = super().values(keys, width).clone()
        found[..., 256:] = 0
        return found


attention = with_flash_mla(Steps)
