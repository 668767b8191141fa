"""Faults of sinks, of linear biases (ALiBi), and of biases that have a gradient.

theorems verify --attention examples.real_faults.sinks_and_biases:sink_counted_twice
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import wrong_step
from examples.real_faults.rows import Rows, top_and_total, with_bias, with_rows

LARGEST = 2.0
"""The exponent above which ``sink_beside_maximum`` overflows; small, so that moderate sinks show the fault."""


@wrong_step(with_rows, Rows, "total")
def sink_beside_maximum(self: Rows, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Leave the sink σ out of the maximum that is subtracted from the exponents.

    e^{σ − maximum} overflows for a sink far above all logits. Correct for sinks that are not above all logits.

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

    In the report, this happens where the first split of the keys is empty. Here the sink is added once for each of the
    first two blocks of 16 keys. Correct for up to 16 keys.

    Source: ROCm/rocm-libraries #12227
    """
    top, total = Rows.total(self, logits, sinks)
    if sinks is None or logits.shape[-1] <= 16:
        return top, total
    return top, total + torch.exp(sinks[:, None] - top)


@wrong_step(with_rows, Rows, "sink_gradient")
def sink_gradient_zero(self: Rows, sinks: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
    """Return a gradient of the sinks that is exactly zero.

    In the report, the forward pass ignores the sinks as well; here the output, dQ, dK and dV are right.

    Source: NVIDIA/TransformerEngine PR #3551
    """
    return torch.zeros_like(sinks)


@wrong_step(with_rows, Rows, "linear_bias")
def alibi_sign(self: Rows, slopes: Tensor, ahead: Tensor) -> Tensor:
    """Add the linear bias slope · (i − j) in place of slope · (j − i), for row i and key j.

    Keys further away get more weight, not less. Correct for a single key and for slopes of zero.

    Source: meta-pytorch/attention-gym PR #86
    """
    return -Rows.linear_bias(self, slopes, ahead)


@wrong_step(with_rows, Rows, "linear_bias")
def alibi_of_columns(self: Rows, slopes: Tensor, ahead: Tensor) -> Tensor:
    """Add the linear bias slope · j for key j of every row.

    In a causal row this differs from the right bias only by a constant; without causality, keys after the row get too
    large a bias. Correct with ``causal``, as the report says.

    Source: Dao-AILab/flash-attention PR #540
    """
    return slopes[..., None, None] * ahead


@wrong_step(with_bias, Rows, "bias_gradient")
def bias_gradient_of_one(self: Rows, dlogits: Tensor, bias: Tensor) -> Tensor:
    """Return the gradient of a broadcast bias from a single row, head or batch entry, in place of the sum over all.

    The row, head or entry that is written last determines the gradient. Correct for a bias of the shape of the logits.

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
