"""ROCm/aiter PR #4766: what is key and value has one gradient, the sum of both; here that of the values is left out.

There is the contract, dkv; the fault is of our own, two gradients of which one is handed over. Right forward, and for
the query.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.mla import Latent, with_latent


class Steps(Latent):
    """Values without a gradient."""

    def values(self, keys: Tensor, width: int) -> Tensor:
        return super().values(keys, width).detach()


attention = with_latent(Steps)
