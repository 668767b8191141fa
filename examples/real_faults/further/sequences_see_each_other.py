"""pytorch/pytorch #177378: queries of one sequence of a nested tensor attend to the keys of all of them.

There if flex attention is given nested tensors and no mask of blocks. Right for one sequence.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.nested import Jagged, with_nested


class Steps(Jagged):
    """All keys, one behind another."""

    def keys(self, every: Tensor, own: slice) -> Tensor:
        return every


attention = with_nested(Steps)
