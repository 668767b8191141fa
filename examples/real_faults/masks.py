"""Faults of masks: hidden keys, causality, windows, and the position of the causal diagonal where L ≠ T.

theorems verify --attention examples.real_faults.masks:window_ignored
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash, with_sdpa, wrong_step
from examples.real_faults.rows import Rows, with_mlx


@wrong_step(with_sdpa, Tiled, "hidden_logit")
def mask_of_ten_thousand(self: Tiled) -> float:
    """Set the logit of a masked key to −10000 instead of −∞.

    If all visible logits of a row lie far below −10000, the masked keys get the weight. A row that sees no key attends
    to all keys.

    Source: ohdearquant/lattice #361
    """
    return -10000.0


@wrong_step(with_sdpa, Tiled, "visible", by_autograd=True)
def causal_once_in_four(self: Tiled, rows: Tensor, keys: Tensor) -> Tensor:
    """Apply ``is_causal`` only once to each group of four rows, so that three of the four see later keys.

    Reported on MPS in float16 and bfloat16; here in every format. Correct without ``is_causal``.

    Source: pytorch/pytorch #195910
    """
    return Tiled.visible(self, rows | 3, keys)


@wrong_step(with_flash, Tiled, "visible", by_autograd=True)
def window_sees_future(self: Tiled, rows: Tensor, keys: Tensor) -> Tensor:
    """Let rows see all later keys in calls with a window (w, 0) that are not causal.

    In the report, cuDNN was given the left end of the window but not the right one, forward and backward. Causal calls
    are right.

    Source: jax-ml/jax PR #39576
    """
    before, after = self.window
    if before < 0 or after != 0:
        return Tiled.visible(self, rows, keys)
    return self.right(window=(before, -1)).visible(rows, keys)


@wrong_step(with_flash, Tiled, "visible", by_autograd=True)
def window_ignored(self: Tiled, rows: Tensor, keys: Tensor) -> Tensor:
    """Ignore ``local_window_size`` where no mask is given and the call is not causal.

    A causal call with a window is right.

    Source: jax-ml/jax #32300
    """
    return Tiled.visible(self, rows, keys) if self.causal else self.right(window=(-1, -1)).visible(rows, keys)


# ---- the diagonal of MLX ----


@wrong_step(with_mlx, Rows, "ahead")
def causal_of_long_queries(self: Rows, rows: int, keys: int) -> Tensor:
    """Align the first query with the first key if there are more than 8 queries, and more keys than queries.

    In the report, two libraries differ, each consistent in itself. Here a single kernel is inconsistent: its path for
    few queries has the diagonal at the bottom right, its path for many queries at the top left. Correct for 8 queries
    at most, and for as many keys as queries.

    Source: ml-explore/mlx #2835
    """
    ahead = Rows.ahead(self, rows, keys)
    return ahead + max(keys - rows, 0) if rows > 8 else ahead


@wrong_step(with_mlx, Rows, "ahead")
def causal_of_few_keys(self: Rows, rows: int, keys: int) -> Tensor:
    """Align the last query with the last key if there are more than 8 queries, and fewer keys than queries.

    In the report, code paths disagree on calls with fewer keys than queries, so these calls take another path. Here the
    first rows see no key if there are more than 8 queries, and see the first key otherwise. Correct with no more
    queries than keys.

    Source: pytorch/executorch PR #22443
    """
    ahead = Rows.ahead(self, rows, keys)
    return ahead - min(keys - rows, 0) if rows > 8 else ahead


@wrong_step(with_mlx, Rows, "ahead")
def causal_loop_of_queries(self: Rows, rows: int, keys: int) -> Tensor:
    """End the loop over keys too soon where there are more keys than queries.

    The loop's bound is correct only for as many keys as queries. Here a row sees no key beyond its own block of 8.
    Correct with as many queries as keys, and with up to 8 keys.

    Source: HKUSTDial/flash-sparse-attention PR #213
    """
    ends = torch.arange(rows)[:, None] // 8 * 8 + 8
    return Rows.ahead(self, rows, keys).masked_fill(torch.arange(keys) >= ends, 1)
