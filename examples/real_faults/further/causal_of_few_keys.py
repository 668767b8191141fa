"""pytorch/executorch PR #22443: a causal call with more queries than keys, of which no two paths have one idea.

There it is left to another path. Here first rows are without a key, as at the bottom right, if there are more than 8
queries, and see the first key if there are fewer. Right with no more queries than keys.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.mlx import ByLonger, with_mlx


class Steps(ByLonger):
    """Of more than 8 queries the last one stands at the last key."""

    def ahead(self, rows: int, keys: int) -> Tensor:
        found = super().ahead(rows, keys)
        return found - min(keys - rows, 0) if rows > 8 else found


attention = with_mlx(Steps)
