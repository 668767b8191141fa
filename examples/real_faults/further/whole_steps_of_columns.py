"""Logits are added up in steps of 128 columns, of which 576 are four and a half: the rotated ones are left out.

Reported nowhere. Right where keys have a multiple of 128 columns.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.flash_mla import with_flash_mla
from examples.real_faults.further.mla import Latent


class Steps(Latent):
    """What is behind the last whole step is zero."""

    def of_logits(self, keys: Tensor, width: int) -> Tensor:
        found = keys.clone()
        found[..., keys.shape[-1] // 128 * 128 :] = 0
        return found


attention = with_flash_mla(Steps)
