"""pytorch/pytorch #195910: ``is_causal`` on MPS is applied once to each group of four rows; three see the future.

There in float16 and bfloat16, here in every precision. Without ``is_causal`` all is right.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_sdpa


class Steps(Tiled):
    """Four rows with the mask of the last."""

    by_autograd = True

    def visible(self, rows: Tensor, keys: Tensor) -> Tensor:
        return super().visible(rows | 3, keys)


attention = with_sdpa(Steps)
