"""paiml/aprender #2753: in the online softmax the correction of the running sum is always 1.

Right where the first block of keys has the maximum, so for every T ≤ 32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_plain


class Steps(Tiled):
    """The sum of e^{logit − maximum}, each term with the maximum of its time."""

    by_autograd = True

    def correction(self, kept: Tensor) -> Tensor:
        return torch.ones_like(kept)


attention = with_plain(Steps)
