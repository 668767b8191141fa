"""Faults of masks: hidden keys, causality, windows, and the causal diagonal for unequal numbers of queries and keys.

Each function replaces one correct step of a kernel.

theorems verify --attention examples.real_faults.masks:window_ignored
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash, with_sdpa, wrong_step
from examples.real_faults.rows import Rows, with_mlx


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


# ---- the diagonal of MLX ----


@wrong_step(with_mlx, Rows, "ahead")
def causal_of_long_queries(self: Rows, rows: int, keys: int) -> Tensor:
    """Align the first query with the first key, instead of the last with the last, if there are more than 8 queries.

    In the report, two libraries differ, each consistent in itself. Here a single kernel is inconsistent: its code for
    up to 8 queries has the causal diagonal at the bottom right, its code for more queries at the top left. Results are
    right for up to 8 queries, and if there are no more keys than queries.

    Source: ml-explore/mlx #2835
    """
    ahead = Rows.ahead(self, rows, keys)
    return ahead + max(keys - rows, 0) if rows > 8 else ahead


@wrong_step(with_mlx, Rows, "ahead")
def causal_of_few_keys(self: Rows, rows: int, keys: int) -> Tensor:
    """Align the last query with the last key in calls of more than 8 queries with fewer keys than queries.

    Then the first queries see no key, although in shorter calls the first query is aligned with the first key. In the
    report, code paths disagree on such calls, which therefore take another path. Results are right with at most as many
    queries as keys, and for up to 8 queries.

    Source: pytorch/executorch PR #22443
    """
    ahead = Rows.ahead(self, rows, keys)
    return ahead - min(keys - rows, 0) if rows > 8 else ahead


@wrong_step(with_mlx, Rows, "ahead")
def causal_loop_of_queries(self: Rows, rows: int, keys: int) -> Tensor:
    """End the loop over keys too soon if there are more keys than queries.

    The loop's bound is right only for as many keys as queries. Here a row sees no key beyond the block of 8 keys that
    contains the key of the row's own index. Results are right with no more keys than queries, and with up to 8 keys.

    Source: HKUSTDial/flash-sparse-attention PR #213
    """
    ends = torch.arange(rows)[:, None] // 8 * 8 + 8
    return Rows.ahead(self, rows, keys).masked_fill(torch.arange(keys) >= ends, 1)
