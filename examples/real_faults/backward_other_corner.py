"""xlite-dev/ffpa-attn PR #300: where L ≠ T, the backward pass has its causal mask in the other corner.

The forward pass aligns the last row with the last key, the backward pass the first row with the first key. The output
is right, and so are the gradients where L = T.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash


class Steps(Tiled):
    """A backward pass with its causal mask in the other corner."""

    def backward(self, *saved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.right(first_key=0 if self.causal else self.first_key).backward(*saved)


attention = with_flash(Steps)
