"""deepseek-ai/FlashMLA PR #106: the log-sum-exp is multiplied by log₂ e and not divided by it again.

It was the reference of the tests that had it. The output is right.
"""

from __future__ import annotations

import math

from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash


class Steps(Tiled):
    """A logarithm in base 2 where the natural one is documented."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = super().forward(q, k, v)
        return out, lse / math.log(2)

    def backward(
        self, upstream: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return super().backward(upstream, q, k, v, out, lse * math.log(2))


attention = with_flash(Steps)
