"""Dao-AILab/flash-attention PR #2421: dK and dV of a sequence without queries are NaN, where they are zero.

Nothing runs over its keys, and what lies in memory is returned. Right where each sequence has a query.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows
from examples.real_faults.further.varlen import Packed, with_varlen


class Steps(Packed):
    """The gradients of keys that no query asks for are not written."""

    def one(self, rows: Rows, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if len(q) == 0 and k.requires_grad:
            k, v = (x * 1 for x in (k, v))
            out = q.new_zeros((0, q.shape[1], v.shape[2])) + 0 * (k.sum() + v.sum())
            k.register_hook(lambda gradient: torch.full_like(gradient, torch.nan))
            v.register_hook(lambda gradient: torch.full_like(gradient, torch.nan))
            return out, q.new_zeros((q.shape[1], 0))
        return super().one(rows, q, k, v)


attention = with_varlen(Steps)
