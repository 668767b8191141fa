"""Faults of the log-sum-exp, of its gradient, and of merging results for parts of the keys by their log-sum-exps.

Axes: S parts of the keys, B batch entries, H heads, L queries, M columns of values. Each function that is decorated
with ``wrong_step`` replaces one correct step of a kernel.

theorems verify --attention examples.real_faults.log_sum_exp:lse_in_base_two
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from examples.real_faults.attention import (
    Kernel,
    Tiled,
    at_least_float32,
    finite,
    interface,
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


@interface
def with_merge_state(steps: type[Merge]) -> Kernel:
    """Make a function with flashinfer's interface, from a class of steps, that merges two parts (L, H, M), (L, H)."""

    def attention(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
        wide = at_least_float32(v_a)
        out, lse = steps().whole(torch.stack([v_a, v_b]).to(wide), torch.stack([s_a, s_b]).to(wide))
        return out.to(v_a.dtype), lse

    return attention


@interface
def with_combine(steps: type[Merge]) -> Kernel:
    """Make a function with flash-attn's interface, from a class of steps, that merges S parts at once."""

    def attention(
        out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None, out_dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        if out is not None:
            raise ValueError("this kernel cannot write to a given tensor: omit the argument out")
        whole, lse = steps().whole(out_partial, lse_partial)
        return whole.to(out_dtype or out_partial.dtype), lse

    return attention


right_merge_state, right_combine = with_merge_state(Merge, "right_merge_state"), with_combine(Merge, "right_combine")


@wrong_step(with_merge_state, Merge, "weights")
def merge_in_base_two(self: Merge, lse: Tensor, shift: Tensor) -> Tensor:
    """Weight the parts by 2^lse instead of e^lse, although the log-sum-exps lse are natural logarithms.

    In the reported code, kernels return logarithms to base 2, and the merge uses powers of e; here it is the other way
    round. Results are right if all log-sum-exps of a row are equal.

    Source: sgl-project/sglang #40903
    """
    return torch.exp2(lse - shift)


@wrong_step(with_merge_state, Merge, "shift")
def merge_of_nothing(self: Merge, lse: Tensor) -> Tensor:
    """Return NaN instead of the output 0 and the log-sum-exp −∞ if neither of two parts sees a key.

    The kernel subtracts the maximum −∞ from −∞. Results are right if at least one of the two parts sees a key.

    Source: flashinfer-ai/flashinfer #4051
    """
    return lse.detach().amax(dim=0)


@wrong_step(with_combine, Merge, "shift")
def combine_without_maximum(self: Merge, lse: Tensor) -> Tensor:
    """Start the maximum of the log-sum-exps at 0 instead of −∞, so that very negative log-sum-exps get weight 0.

    In the reported kernel, the running maximum of the attention itself starts too high, at −5e4. Here e^lse underflows
    if the log-sum-exp lse is below −700 (−103 in float32). Results are right unless this holds for all parts of a row.

    Source: flashinfer-ai/flashinfer #4267
    """
    return Merge.shift(self, lse).clamp(min=0.0)
