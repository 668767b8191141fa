"""A right merge of two parts of the keys by their log-sum-exps, in flashinfer's interface, and of many in flash-attn's.

theorems verify --attention examples.real_faults.further.merge:merge_state
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from examples.real_faults.further.rows import of_module, or_one


class Merge:
    """The steps, on the parts along the first axis: (S, …, M) and (S, …), at least in float32."""

    def shift(self, lse: Tensor) -> Tensor:
        """What is subtracted from the log-sum-exps, (…); 0 where no part sees a key: −∞ − −∞ has no value."""
        top = lse.detach().amax(dim=0)
        return torch.where(top == -math.inf, 0.0, top)

    def weights(self, lse: Tensor, shift: Tensor) -> Tensor:
        """Of the parts, before they are divided by their sum."""
        return torch.exp(lse - shift)

    def log_sum_exp(self, total: Tensor, shift: Tensor) -> Tensor:
        """Of the whole, from the sum of the weights."""
        return torch.where(total == 0, -math.inf, shift + or_one(total).log())

    def whole(self, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp of the whole."""
        shift = self.shift(lse)
        weights = self.weights(lse, shift)
        total = weights.sum(dim=0)
        return (weights[..., None] * out).sum(dim=0) / or_one(total)[..., None], self.log_sum_exp(total, shift)


def with_merge_state(steps: type[Merge]) -> Callable[..., tuple[Tensor, Tensor]]:
    """flashinfer's interface: (L, H, M), (L, H) twice."""

    def attention(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(v_a.dtype, torch.float32)
        out, lse = steps().whole(torch.stack([v_a, v_b]).to(wide), torch.stack([s_a, s_b]).to(wide))
        return out.to(v_a.dtype), lse

    return of_module(steps, attention)


def with_combine(steps: type[Merge]) -> Callable[..., tuple[Tensor, Tensor]]:
    """flash-attn's interface: (S, B, L, H, M), (S, B, L, H)."""

    def attention(
        out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None, out_dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        if out is not None:
            raise ValueError("this one makes its own output: leave out out")
        whole, lse = steps().whole(out_partial, lse_partial)
        return whole.to(out_dtype or out_partial.dtype), lse

    return of_module(steps, attention)


merge_state = with_merge_state(Merge)
attention = combine = with_combine(Merge)
