"""flagos-ai/FlagGems #5896: values that are a transposed view are read as if they were contiguous.

Contiguous values are right, and here slices and broadcasts too.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_sdpa


class Steps(Tiled):
    """Values in the order in which they are stored."""

    by_autograd = True

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if 0 in v.stride():
            return super().forward(q, k, v)
        stored = v.permute(sorted(range(v.dim()), key=v.stride, reverse=True))
        return super().forward(q, k, stored.reshape(v.shape))


attention = with_sdpa(Steps)
