"""Faults of sinks, of linear biases (ALiBi), and of biases that have a gradient.

theorems verify --attention examples.real_faults.sinks_and_biases:sink_counted_twice
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import wrong_step
from examples.real_faults.rows import Rows, top_and_total, with_bias, with_rows

LARGEST = 2.0
"""Exponent from which on the sum of ``sink_beside_maximum`` overflows: small, so that moderate sinks show it."""


@wrong_step(with_rows, Rows, "total")
def sink_beside_maximum(self: Rows, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Add the sink to the sum after the maximum of the keys is taken.

    e^{σ − maximum} overflows for a sink far above all logits. Correct for sinks among them.

    Source: Dao-AILab/flash-attention PR #2752
    """
    top, total = top_and_total(logits)
    if sinks is None:
        return top, total
    exponent = sinks[:, None] - top
    return top, total + torch.where(exponent > LARGEST, torch.inf, torch.exp(exponent))


@wrong_step(with_rows, Rows, "total")
def sink_counted_twice(self: Rows, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Add the sink to the sum twice.

    As reported, this happens where the first split of the keys is empty; here where there are at least two blocks of 16
    keys, once for each of the first two blocks. Correct for up to 16 keys.

    Source: ROCm/rocm-libraries #12227
    """
    top, total = Rows.total(self, logits, sinks)
    if sinks is None or logits.shape[-1] <= 16:
        return top, total
    return top, total + torch.exp(sinks[:, None] - top)


@wrong_step(with_rows, Rows, "sink_gradient")
def sink_gradient_zero(self: Rows, sinks: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
    """Return a gradient of the sinks that is exactly zero.

    As reported, the forward pass lost the sinks as well; here it is right, and so are dQ, dK and dV.

    Source: NVIDIA/TransformerEngine PR #3551
    """
    return torch.zeros_like(sinks)


@wrong_step(with_rows, Rows, "linear_bias")
def alibi_sign(self: Rows, slopes: Tensor, ahead: Tensor) -> Tensor:
    """Add the linear bias slope · (i − j) in place of slope · (j − i).

    Keys further away get more weight, not less. Correct for a single key and for slopes of zero.

    Source: meta-pytorch/attention-gym PR #86
    """
    return -Rows.linear_bias(self, slopes, ahead)


@wrong_step(with_rows, Rows, "linear_bias")
def alibi_of_columns(self: Rows, slopes: Tensor, ahead: Tensor) -> Tensor:
    """Add the linear bias slope · j, whatever the row.

    For a causal row this differs from the right bias only by a constant; without causality, keys after the row get too
    large a bias. Correct with ``causal``, as the discussion says.

    Source: Dao-AILab/flash-attention PR #540
    """
    return slopes[..., None, None] * ahead


@wrong_step(with_bias, Rows, "bias_gradient")
def bias_gradient_of_one(self: Rows, dlogits: Tensor, bias: Tensor) -> Tensor:
    """Return the gradient of a broadcast bias from a single row, head or batch entry in place of the sum.

    The last row, head or entry that is written determines the gradient. Correct for a bias of the shape of the logits.

    Source: HKUSTDial/flash-sparse-attention PR #194
    """
    shape = (1,) * (4 - bias.dim()) + tuple(bias.shape)
    for axis, size in enumerate(shape):
        dlogits = dlogits.narrow(axis, dlogits.shape[axis] - size, size)
    return dlogits.reshape(bias.shape)


@wrong_step(with_bias, Rows, "added_bias")
def bias_before_scale(self: Rows, bias: Tensor) -> Tensor:
    """Add the bias before the logits are scaled: (q·k + b) · scale.

    The bias and its gradient are multiplied by the scale. Correct with a scale of 1, and for masks of 0 and −∞.

    Source: AI-Hypercomputer/accelerator-agents PR #101
    """
    return bias * self.scale
