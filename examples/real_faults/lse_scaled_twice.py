"""HKUSTDial/flash-sparse-attention PR #106: the log-sum-exp of a split of the keys has its maximum scaled twice.

Two splits are merged by wrong weights, unless the scale is 1 or their maxima agree. With one split (here T ≤ 32) only
the log-sum-exp is wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import BLOCK, Tiled, finite, or_one, with_flash


class Steps(Tiled):
    """Two halves of the keys, merged by their log-sum-exps."""

    by_autograd = True

    def log_sum_exp(self, top: Tensor, total: Tensor) -> Tensor:
        return super().log_sum_exp(top * self.scale, total)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if k.shape[-2] <= BLOCK:
            return super().forward(q, k, v)
        every_k, every_v = (self.for_each_query_head(q, x) for x in (k, v))
        t = k.shape[-2]
        halves = [self.over_keys(q, every_k, every_v, keys) for keys in (range(t // 2), range(t // 2, t))]
        outs, lses = (torch.stack(parts) for parts in zip(*halves, strict=True))
        top = lses.detach().amax(dim=0)
        weights = torch.exp(lses - finite(top))
        total = weights.sum(dim=0)
        return (weights[..., None] * outs).sum(dim=0) / or_one(total)[..., None], top + or_one(total).log()


attention = with_flash(Steps)
