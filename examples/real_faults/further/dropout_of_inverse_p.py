"""lmjohns3/theanets PR #123: what is kept is divided by the share that is dropped, in place of the one that is kept.

There of a layer. Right without dropout, and if half of the weights are dropped.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from examples.real_faults.further.gpt_oss import Eager, with_eager


class Steps(Eager):
    """Larger by (1 − p)/p."""

    def drop(self, weights: Tensor, share: float, module: Any) -> Tensor:
        found = super().drop(weights, share, module)
        return found * (1 - share) / share if module.training else found


attention = with_eager(Steps)
