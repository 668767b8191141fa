"""Faults of sinks, of linear biases (ALiBi), and of biases that have a gradient. Each replaces one correct step.

A sink is an additional key of a head with a logit σ of its own and value 0.

theorems verify --attention examples.real_faults.sinks_and_biases:sink_counted_twice
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import wrong_step
from examples.real_faults.rows import Rows, top_and_total, with_bias, with_rows

LARGEST = 2.0
"""The exponent above which ``sink_beside_maximum`` returns ∞; so small that moderate sinks already show the fault."""


@wrong_step(with_rows, Rows, "total")
def sink_beside_maximum(self: Rows, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Leave the sink's logit σ out of the maximum that is subtracted before exponentials are taken.

    Then e^{σ − maximum} overflows if σ is far above all other logits. Results are right if σ is not above all logits.

    Source: Dao-AILab/flash-attention PR #2752
    """
    top, total = top_and_total(logits)
    if sinks is None:
        return top, total
    exponent = sinks[:, None] - top
    return top, total + torch.where(exponent > LARGEST, torch.inf, torch.exp(exponent))


@wrong_step(with_rows, Rows, "total")
def sink_counted_twice(self: Rows, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Add the exponential of the sink's logit twice to the sum by which weights are divided.

    In the reported kernel, this happens if the first split of the keys is empty. Here the exponential is added once for
    each of the first two blocks of 16 keys. Results are right for up to 16 keys.

    Source: ROCm/rocm-libraries #12227
    """
    top, total = Rows.total(self, logits, sinks)
    if sinks is None or logits.shape[-1] <= 16:
        return top, total
    return top, total + torch.exp(sinks[:, None] - top)


@wrong_step(with_rows, Rows, "sink_gradient")
def sink_gradient_zero(self: Rows, sinks: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
    """Return zero as the gradient by the sinks, although the output depends on them.

    In the reported kernel, the forward pass ignores the sinks as well; here the output, dQ, dK and dV are right.

    Source: NVIDIA/TransformerEngine PR #3551
    """
    return torch.zeros_like(sinks)


@wrong_step(with_rows, Rows, "linear_bias")
def alibi_sign(self: Rows, slopes: Tensor, ahead: Tensor) -> Tensor:
    """Add the linear bias with the wrong sign.

    Keys at a greater distance get more weight, not less. Results are right for a single key and for slopes of zero.

    Source: meta-pytorch/attention-gym PR #86
    """
    return -Rows.linear_bias(self, slopes, ahead)


@wrong_step(with_rows, Rows, "linear_bias")
def alibi_of_columns(self: Rows, slopes: Tensor, ahead: Tensor) -> Tensor:
    """Add the linear bias slope · j for key j in every row, instead of −slope times the distance from the row.

    In a causal row the wrong bias differs from the right bias only by a constant, so results are right with ``causal``,
    as the report says. Without causality, keys after the row get too large a bias.

    Source: Dao-AILab/flash-attention PR #540
    """
    return slopes[..., None, None] * ahead


@wrong_step(with_bias, Rows, "bias_gradient")
def bias_gradient_of_one(self: Rows, dlogits: Tensor, bias: Tensor) -> Tensor:
    """Return the gradient by a broadcast bias from a single row, head or batch entry, instead of the sum over all.

    The row, head or entry that is written last determines the gradient. Results are right if the bias has the shape of
    the logits.

    Source: HKUSTDial/flash-sparse-attention PR #194
    """
    shape = (1,) * (4 - bias.dim()) + tuple(bias.shape)
    for axis, size in enumerate(shape):
        dlogits = dlogits.narrow(axis, dlogits.shape[axis] - size, size)
    return dlogits.reshape(bias.shape)


@wrong_step(with_bias, Rows, "added_bias")
def bias_before_scale(self: Rows, bias: Tensor) -> Tensor:
    """Add the bias b before scaling, as in (q·k + b) · scale, instead of after it.

    The bias and its gradient are multiplied by the scale. Results are right with a scale of 1, and for masks of 0 and
    −∞.

    Source: AI-Hypercomputer/accelerator-agents PR #101
    """
    return bias * self.scale
