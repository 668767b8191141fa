"""Dao-AILab/flash-attention PR #540: the linear bias is slope · j, whatever the row.

That moves all logits of a causal row alike; without causality keys behind a row are nearer than they should be. Right
with ``causal``, as the discussion says.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.rows import Rows, with_flash


class Steps(Rows):
    """Distances with a sign."""

    def linear_bias(self, slopes: Tensor, ahead: Tensor) -> Tensor:
        return slopes[..., None, None] * ahead


attention = with_flash(Steps)
