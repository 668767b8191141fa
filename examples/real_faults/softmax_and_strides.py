"""Faults of the online softmax, and of kernels that read or write wrong places in memory. Each replaces one step.

Axes: B batch entries, H heads, L queries (rows), T keys, E columns of queries and keys.

theorems verify --attention examples.real_faults.softmax_and_strides:sum_not_corrected
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import BLOCK, Tiled, with_flash, with_plain, with_sdpa, wrong_step

TILE = 4
"""The number of rows of the output that are written together, in the fault ``output_strides``."""


# ---- the online softmax ----


@wrong_step(with_flash, Tiled, "first_maximum", by_autograd=True)
def finite_first_maximum(self: Tiled) -> float:
    """Start the running maximum of the unscaled inner products at −5e4 instead of −∞.

    A row that sees no key, or whose inner products all lie far below −5e4, gets output zero and a log-sum-exp at the
    start value of the maximum. Every other row is right.

    Source: flashinfer-ai/flashinfer #4267
    """
    return -5e4 * self.scale


@wrong_step(with_plain, Tiled, "correction", by_autograd=True)
def sum_not_corrected(self: Tiled, decay: Tensor) -> Tensor:
    """Leave the running sum of exponentials as it is when the running maximum rises, instead of rescaling the sum.

    Results are right if the first block of keys has the largest logit, and so always with up to 32 keys.

    Source: paiml/aprender #2753
    """
    return torch.ones_like(decay)


@wrong_step(with_sdpa, Tiled, "maximum", by_autograd=True)
def constant_for_maximum(self: Tiled, top: Tensor, logits: Tensor) -> Tensor:
    """Subtract the constant 10 from logits, instead of their maximum, before exponentials are taken.

    In the report, logits of a model reach 2000, their exponentials overflow, and the model writes "!!!!". Results are
    right while no exponential overflows or underflows.

    Source: HabanaAI/vllm-fork #275
    """
    return torch.full_like(top, 10.0)


# ---- layout ----


@wrong_step(with_sdpa, Tiled, "forward", by_autograd=True)
def tail_of_last_block(self: Tiled, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Read the last block of keys as a whole block of 32 even if fewer keys are left.

    The surplus keys are the first keys of the next head; after the last head they are zeros here. The fault was
    reported on MPS for decoding: L ≤ 8, L ≤ T, 64, 96 or 128 columns, not causal (and here without a mask). Results are
    right in all other calls, and if T is a multiple of 32.

    Source: pytorch/pytorch PR #169222
    """
    decoding = q.shape[-2] <= min(8, k.shape[-2]) and q.shape[-1] in (64, 96, 128)
    if not decoding or self.causal or self.mask is not None:
        return Tiled.forward(self, q, k, v)
    return Tiled.forward(self, q, read_on(k), read_on(v))


def read_on(x: Tensor) -> Tensor:
    """Return x with each head's rows continued to a multiple of BLOCK by the rows that follow in memory."""
    t = x.shape[-2]
    missing = -t % BLOCK
    memory = torch.cat([x.reshape(-1, x.shape[-1]), x.new_zeros(missing, x.shape[-1])])
    starts = torch.arange(0, x.shape[:-2].numel() * t, t, device=x.device).reshape(x.shape[:-2])
    return memory[starts[..., None] + torch.arange(t + missing, device=x.device)]


@wrong_step(with_flash, Tiled, "forward", by_autograd=True)
def output_strides(self: Tiled, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Write rows of the output with the stride of the wrong axis, in decoding, when splits of the keys are merged.

    A tile of rows starts at the right place, but the rows in the tile are ``out.stride(-3)`` apart, which is larger
    than a row if (B, L, H, E) is contiguous and H > 1. So rows overwrite other rows or lie beyond the end, and some
    rows are never written. Results are right for a transposed (B, H, L, E), as PyTorch passes it. Here a tile has four
    rows, decoding means L ≤ 8, and rows that are not written are zero.

    Source: flagos-ai/FlagGems #5235
    """
    out, lse = Tiled.forward(self, q, k, v)
    b, h, l, m = out.shape
    if l > 8 or q.stride(-2) == q.shape[-1] or not q.transpose(1, 2).is_contiguous():
        return out, lse
    rows = b * h * l
    written = {row - row % TILE + row % TILE * h: row for row in range(rows)}
    nothing = out.new_zeros(1, m)
    memory = torch.cat([out.reshape(-1, m), nothing])[[written.get(address, rows) for address in range(rows)]]
    return memory.reshape(b, l, h, m).transpose(1, 2), lse


@wrong_step(with_sdpa, Tiled, "forward", by_autograd=True)
def value_strides(self: Tiled, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Read values that are a transposed view as if they were contiguous in memory.

    Results are right for contiguous values, and here also for slices and broadcast tensors.

    Source: flagos-ai/FlagGems #5896
    """
    if 0 in v.stride():
        return Tiled.forward(self, q, k, v)
    stored = v.permute(sorted(range(v.dim()), key=v.stride, reverse=True))
    return Tiled.forward(self, q, k, stored.reshape(v.shape))
