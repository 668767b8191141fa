"""NVIDIA/TransformerEngine #3216: a backward pass with width 256 and batch ≥ 2 returns a dQ about five times too large.

Batch 1 is right, and so are Gaussian tensors: it takes a model's activations. The cause is not known to us; here dQ is
wrong in rows whose log-sum-exp exceeds 12, which those of Gaussian tensors do not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash


class Steps(Tiled):
    """A dQ that is wrong for batches of long vectors with large logits."""

    def backward(
        self, upstream: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = super().backward(upstream, q, k, v, out, lse)
        if q.shape[0] >= 2 and q.shape[-1] == 256:
            dq = torch.where((lse > 12)[..., None], 5 * dq, dq)
        return dq, dk, dv


attention = with_flash(Steps)
