"""Faults of the log-sum-exp and of its gradient, and a merge of results for parts of the keys.

Axes: S parts of the keys, B batch entries, H heads, L queries, M columns of values. Each function that is decorated
with ``wrong_step`` replaces one correct step of a kernel.

theorems verify --attention examples.real_faults.log_sum_exp:lse_in_base_two
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from examples.real_faults.attention import (
    Tiled,
    finite,
    or_one,
    with_flash,
    wrong_step,
)
from examples.real_faults.rows import Rows, with_rows


@wrong_step(with_flash, Tiled, "returned_log_sum_exp")
def lse_in_base_two(self: Tiled, lse: Tensor) -> Tensor:
    """Return the log-sum-exp as a logarithm to base 2, log₂ e times the natural logarithm that is documented.

    In the report, the tests' reference has the fault. The output is right.

    Source: deepseek-ai/FlashMLA PR #106
    """
    return lse / math.log(2)


@wrong_step(with_flash, Tiled, "log_sum_exp", by_autograd=True, in_halves=True)
def lse_scaled_twice(self: Tiled, top: Tensor, total: Tensor) -> Tensor:
    """Multiply the maximum of already scaled logits by the scale again in the log-sum-exp of each split of the keys.

    Two splits are merged with wrong weights, unless the scale is 1 or the splits have the same maximum. With one split
    (here up to 32 keys) only the log-sum-exp is wrong.

    Source: HKUSTDial/flash-sparse-attention PR #106
    """
    return Tiled.log_sum_exp(self, top * self.scale, total)


# ---- the gradient of the log-sum-exp ----


@wrong_step(with_rows, Rows, "delta")
def lse_not_differentiated(self: Rows, upstream: Tensor, out: Tensor, dlse: Tensor) -> Tensor:
    """Omit the gradient through the log-sum-exp, although autograd believes that the log-sum-exp is differentiable.

    The output is right, and so are the gradients of losses that do not depend on the log-sum-exp.

    Source: Dao-AILab/flash-attention #1817
    """
    return (upstream * out).sum(dim=-1)


@wrong_step(with_rows, Rows, "delta")
def lse_gradient_subtracted(self: Rows, upstream: Tensor, out: Tensor, dlse: Tensor) -> Tensor:
    """Add the upstream gradient of the log-sum-exp to Σ out · dout, instead of subtracting it.

    The backward pass subtracts the combined term from the gradient of each weight. The cited change has the right sign;
    the wrong sign is an easy mistake when the two terms are combined. Results are right if the loss does not depend on
    the log-sum-exp.

    Source: pytorch/pytorch PR #189784
    """
    return (upstream * out).sum(dim=-1) + dlse


# ---- merges of parts ----


class Merge:
    """The correct steps that merge S partial outputs (S, …, M) and log-sum-exps (S, …), in float32 or wider."""

    def shift(self, lse: Tensor) -> Tensor:
        """Return the number that is subtracted from the log-sum-exps of a row: the maximum, or 0 if no key is seen."""
        return finite(lse.detach().amax(dim=0))

    def weights(self, lse: Tensor, shift: Tensor) -> Tensor:
        """Compute the weights of the parts in each row, before they are divided by their sum."""
        return torch.exp(lse - shift)

    def whole(self, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the log-sum-exp of attention to the keys of all parts."""
        shift = self.shift(lse)
        weights = self.weights(lse, shift)
        total = weights.sum(dim=0)
        merged = torch.where(total == 0, -math.inf, shift + or_one(total).log())
        return (weights[..., None] * out).sum(dim=0) / or_one(total)[..., None], merged
