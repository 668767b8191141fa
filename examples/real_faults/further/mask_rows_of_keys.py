"""facebookresearch/xformers #808: masks have to be rows of longer ones, whose stride is no longer the number of keys.

There the kernel refuses other strides. Here it takes a row of the mask to begin where that many keys end. Right where
the mask is as long as the keys, or has one row.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.gpt_oss import Eager, with_eager


class Steps(Eager):
    """Row i begins at i times the number of keys."""

    def of_keys(self, mask: Tensor, queries: int, keys: int) -> Tensor:
        rows = mask.shape[-2]
        return mask.flatten(-2)[..., : rows * keys].unflatten(-1, (rows, keys))


attention = with_eager(Steps)
