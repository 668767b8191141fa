"""ROCm/aiter #3095: with more than one key to a page the kernel reads another place than the latent columns.

There all paths silently return something else. Here values are the last columns, where the rotated part of a key is.
Right where values are as wide as keys.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.mla import Latent, with_latent


class Steps(Latent):
    """The last columns of the keys."""

    def values(self, keys: Tensor, width: int) -> Tensor:
        return keys[..., keys.shape[-1] - width :]


attention = with_latent(Steps)
