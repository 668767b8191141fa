"""Faults of the log-sum-exp, of its gradient, and of merging results for parts of the keys by their log-sum-exps.

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
    """Return the log-sum-exp to the base 2, multiplied by log₂ e.

    In the report, the tests' reference has the fault. The output is right.

    Source: deepseek-ai/FlashMLA PR #106
    """
    return lse / math.log(2)


@wrong_step(with_flash, Tiled, "log_sum_exp", by_autograd=True, in_halves=True)
def lse_scaled_twice(self: Tiled, top: Tensor, total: Tensor) -> Tensor:
    """Multiply the maximum in the log-sum-exp of a split of the keys by the scale twice.

    Two splits are merged with wrong weights, unless the scale is 1 or their maxima agree. With one split (here T ≤ 32)
    only the log-sum-exp is wrong.

    Source: HKUSTDial/flash-sparse-attention PR #106
    """
    return Tiled.log_sum_exp(self, top * self.scale, total)


# ---- the gradient of the log-sum-exp ----


@wrong_step(with_rows, Rows, "delta")
def lse_not_differentiated(self: Rows, upstream: Tensor, out: Tensor, dlse: Tensor) -> Tensor:
    """Omit the gradient through the log-sum-exp, although the log-sum-exp is declared differentiable.

    Output and gradients of losses that do not depend on the log-sum-exp are right.

    Source: Dao-AILab/flash-attention #1817
    """
    return (upstream * out).sum(dim=-1)


@wrong_step(with_rows, Rows, "delta")
def lse_gradient_subtracted(self: Rows, upstream: Tensor, out: Tensor, dlse: Tensor) -> Tensor:
    """Add the gradient of the log-sum-exp to Σ out · dout with the wrong sign, before the sum is subtracted.

    The report has the right sign; the wrong sign is an easy mistake where the two terms are combined. Correct where the
    loss does not depend on the log-sum-exp.

    Source: pytorch/pytorch PR #189784
    """
    return (upstream * out).sum(dim=-1) + dlse


# ---- merges of parts ----


class Merge:
    """The steps that merge S partial outputs (S, …, M) and log-sum-exps (S, …), computed in float32 or wider."""

    def shift(self, lse: Tensor) -> Tensor:
        """Return what is subtracted from the log-sum-exps, (…): their maximum, or 0 where no part sees a key."""
        return finite(lse.detach().amax(dim=0))

    def weights(self, lse: Tensor, shift: Tensor) -> Tensor:
        """Compute the weights of the parts, before division by their sum."""
        return torch.exp(lse - shift)

    def whole(self, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the log-sum-exp over all parts."""
        shift = self.shift(lse)
        weights = self.weights(lse, shift)
        total = weights.sum(dim=0)
        merged = torch.where(total == 0, -math.inf, shift + or_one(total).log())
        return (weights[..., None] * out).sum(dim=0) / or_one(total)[..., None], merged


@interface
def with_merge_state(steps: type[Merge]) -> Kernel:
    """Make a function that merges two parts, each (L, H, M) and (L, H), with flashinfer's interface."""

    def attention(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
        wide = at_least_float32(v_a)
        out, lse = steps().whole(torch.stack([v_a, v_b]).to(wide), torch.stack([s_a, s_b]).to(wide))
        return out.to(v_a.dtype), lse

    return attention


@interface
def with_combine(steps: type[Merge]) -> Kernel:
    """Make a function that merges S parts, (S, B, L, H, M) and (S, B, L, H), with flash-attn's interface."""

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
    """Merge log-sum-exps to the base e with weights 2^lse in place of e^lse.

    In the report, kernels return log-sum-exps to the base 2, and the merge uses powers of e; here it is the other way
    round. The returned log-sum-exp is natural. Correct where all log-sum-exps are equal.

    Source: sgl-project/sglang #40903
    """
    return torch.exp2(lse - shift)


@wrong_step(with_merge_state, Merge, "shift")
def merge_of_nothing(self: Merge, lse: Tensor) -> Tensor:
    """Return NaN instead of (0, −∞) for two parts that see no key.

    The maximum −∞ is subtracted from −∞. Correct where at least one of the two parts sees a key.

    Source: flashinfer-ai/flashinfer #4051
    """
    return lse.detach().amax(dim=0)


@wrong_step(with_combine, Merge, "shift")
def combine_without_maximum(self: Merge, lse: Tensor) -> Tensor:
    """Start the maximum of the log-sum-exps at 0 instead of −∞.

    In the report, the running maximum of the attention itself starts too high, at −5e4. Weights of less than e^−700 (in
    float32 e^−103) become 0. Correct unless all log-sum-exps of a row are below −700 (in float32 −103).

    Source: flashinfer-ai/flashinfer #4267
    """
    return Merge.shift(self, lse).clamp(min=0.0)
