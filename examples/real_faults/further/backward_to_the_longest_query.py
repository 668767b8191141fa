"""pytorch/pytorch PR #115576: the backward pass of nested tensors takes the longest query for the longest key.

There the length of the keys was worked out, and ignored. Here keys behind the number of the longest queries have no
gradient. Right forward, and where no sequence has more keys than queries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.nested import Jagged, with_nested
from examples.real_faults.further.rows import Rows


class Steps(Jagged):
    """Further keys and values without a gradient."""

    def one(self, rows: Rows, q: Tensor, k: Tensor, v: Tensor, longest: int) -> Tensor:
        k, v = (torch.cat([x[:longest], x[longest:].detach()]) for x in (k, v))
        return super().one(rows, q, k, v, longest)


attention = with_nested(Steps)
