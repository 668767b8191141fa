"""ikawrakow/ik_llama.cpp PR #2031: values are found in steps of their own width, though their rows are as wide as keys.

There from the second block of keys on. Right where values are as wide as keys, and for one key.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.mla import Latent, with_latent


class Steps(Latent):
    """Row t begins at t times the width of the values."""

    def values(self, keys: Tensor, width: int) -> Tensor:
        flat = keys.transpose(0, 1).flatten(1)
        return flat[:, : len(keys) * width].unflatten(1, (len(keys), width)).transpose(0, 1)


attention = with_latent(Steps)
