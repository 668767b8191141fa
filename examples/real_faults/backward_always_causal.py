"""triton-lang/triton #4541, #5660: the backward pass of the fused-attention tutorial ignores ``causal``.

It takes every call for a causal one: the gradients of one that is not are wrong, output and causal gradients are right.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_sdpa


class Steps(Tiled):
    """A backward pass that is causal whatever it is told."""

    def backward(self, *saved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.right(causal=True).backward(*saved)


attention = with_sdpa(Steps)
