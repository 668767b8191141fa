"""Faults of backward passes: the output is right, but gradients are wrong. Each function replaces one correct step.

theorems verify --attention examples.real_faults.backward:backward_without_mask
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Gradients, Tiled, with_flash, with_sdpa, wrong_step


@wrong_step(with_sdpa, Tiled, "backward")
def backward_always_causal(self: Tiled, *saved: Tensor) -> Gradients:
    """Treat every call as causal in the backward pass, even if the call is not causal.

    The backward pass of Triton's fused-attention tutorial ignored ``causal``. The gradients are right in causal calls.

    Source: triton-lang/triton #4541, #5660
    """
    return self.right(causal=True).backward(*saved)


@wrong_step(with_flash, Tiled, "backward")
def backward_other_corner(self: Tiled, *saved: Tensor) -> Gradients:
    """Align the causal mask differently in the forward and in the backward pass.

    The forward pass aligns the last query with the last key, the backward pass the first query with the first key. The
    gradients are right if there are as many queries as keys.

    Source: xlite-dev/ffpa-attn PR #300
    """
    return self.right(first_key=0 if self.causal else self.first_key).backward(*saved)


@wrong_step(with_sdpa, Tiled, "backward")
def backward_without_mask(self: Tiled, *saved: Tensor) -> Gradients:
    """Compute the backward pass without the mask.

    ``flash_attn_func`` of flash-attention 4 does not pass the mask to the backward pass, and does not warn. The
    gradients are those of a call in which every query sees every key.

    Source: Dao-AILab/flash-attention #2424
    """
    return self.right(mask=None).backward(*saved)


@wrong_step(with_flash, Tiled, "backward")
def dq_of_a_batch(
    self: Tiled, upstream: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
) -> Gradients:
    """Return a dQ about five times too large, if heads have 256 columns and the batch has at least two entries.

    The fault was reported for the activations of a model; results for a single batch entry and for Gaussian tensors are
    right. The cause is unknown to us. Here dQ is wrong in rows whose log-sum-exp exceeds 12, which does not occur for
    Gaussian tensors.

    Source: NVIDIA/TransformerEngine #3216
    """
    dq, dk, dv = Tiled.backward(self, upstream, q, k, v, out, lse)
    if q.shape[0] >= 2 and q.shape[-1] == 256:
        dq = torch.where((lse > 12)[..., None], 5 * dq, dq)
    return dq, dk, dv


@wrong_step(with_sdpa, Tiled, "for_each_key_head")
def heads_by_remainder(self: Tiled, gradient: Tensor, like: Tensor) -> Tensor:
    """Add the parts of dK and dV from grouped query heads to the wrong key head.

    The backward pass computes the index of the key head from that of the query head wrongly; here with % instead of //.
    Results are right with as many key heads as query heads, or with one key head; dQ is always right.

    Source: XunhaoLai/native-sparse-attention-triton #27
    """
    heads = torch.arange(gradient.shape[-3], device=like.device) % like.shape[-3]
    return torch.zeros_like(like).index_add(-3, heads, gradient)
