"""jax-ml/jax PR #39576: a window (L, 0) that is not causal sees the whole future.

cuDNN was told the left end of the window and not the right one, forward and backward. Causal windows are right.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash


class Steps(Tiled):
    """A window with one end."""

    by_autograd = True

    def visible(self, rows: Tensor, keys: Tensor) -> Tensor:
        before, after = self.window
        if before < 0 or after != 0:
            return super().visible(rows, keys)
        return self.right(window=(before, -1)).visible(rows, keys)


attention = with_flash(Steps)
