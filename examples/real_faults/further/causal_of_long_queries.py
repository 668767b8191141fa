"""ml-explore/mlx #2835: the word "causal" with fewer queries than keys, where first ones meet and not last ones.

There two libraries were compared, each true to itself. Here it is one kernel: its path for few queries has the diagonal
at the bottom right, the one for many at the top left. Right for 8 queries at most, and for as many keys as queries.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.mlx import ByLonger, with_mlx


class Steps(ByLonger):
    """Of more than 8 queries the first one stands at the first key."""

    def ahead(self, rows: int, keys: int) -> Tensor:
        found = super().ahead(rows, keys)
        return found + max(keys - rows, 0) if rows > 8 else found


attention = with_mlx(Steps)
