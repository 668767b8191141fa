"""NVIDIA/TransformerEngine PR #3551: the gradient of the sinks is exactly zero.

There the forward pass lost the sinks as well; here it is right, and so are dQ, dK and dV.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows, with_flash


class Steps(Rows):
    """No gradient."""

    def sink_gradient(self, sinks: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
        return torch.zeros_like(sinks)


attention = with_flash(Steps)
