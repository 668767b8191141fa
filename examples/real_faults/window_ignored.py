"""jax-ml/jax #32300: ``local_window_size`` is ignored where no mask is given and the call is not causal.

A causal call with a window is right.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash


class Steps(Tiled):
    """Nothing masked unless something else is."""

    by_autograd = True

    def visible(self, rows: Tensor, keys: Tensor) -> Tensor:
        return super().visible(rows, keys) if self.causal else self.right(window=(-1, -1)).visible(rows, keys)


attention = with_flash(Steps)
