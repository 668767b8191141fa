"""Faults of masks: hidden keys, causality and windows.

Each function replaces one correct step of a kernel.

theorems verify --attention examples.real_faults.masks:window_ignored
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash, with_sdpa, wrong_step


@wrong_step(with_sdpa, Tiled, "hidden_logit")
def mask_of_ten_thousand(self: Tiled) -> float:
    """Set the logit of a hidden key to −10000 instead of −∞.

    If all visible logits of a row lie far below −10000, the hidden keys get the weight. A row that sees no key attends
    to all keys.

    Source: ohdearquant/lattice #361
    """
    return -10000.0


@wrong_step(with_sdpa, Tiled, "visible", by_autograd=True)
def causal_once_in_four(self: Tiled, rows: Tensor, keys: Tensor) -> Tensor:
    """Apply the causal mask of the last row of each group of four to all four rows, so that three see later keys.

    The fault was reported on MPS in float16 and bfloat16; here it occurs in every format. Results are right without
    ``is_causal``.

    Source: pytorch/pytorch #195910
    """
    return Tiled.visible(self, rows | 3, keys)


@wrong_step(with_flash, Tiled, "visible", by_autograd=True)
def window_sees_future(self: Tiled, rows: Tensor, keys: Tensor) -> Tensor:
    """Let rows see all later keys if a call that is not causal has a window (w, 0), which allows no later key.

    In the reported kernel, cuDNN gets the left end of the window but not the right end, in both passes. Results are
    right in causal calls.

    Source: jax-ml/jax PR #39576
    """
    before, after = self.window
    if before < 0 or after != 0:
        return Tiled.visible(self, rows, keys)
    return self.right(window=(before, -1)).visible(rows, keys)


@wrong_step(with_flash, Tiled, "visible", by_autograd=True)
def window_ignored(self: Tiled, rows: Tensor, keys: Tensor) -> Tensor:
    """Ignore the window in calls that are not causal.

    In the reported function, ``local_window_size`` has no effect if no mask is given and the call is not causal.
    Results are right in causal calls.

    Source: jax-ml/jax #32300
    """
    return Tiled.visible(self, rows, keys) if self.causal else self.right(window=(-1, -1)).visible(rows, keys)
