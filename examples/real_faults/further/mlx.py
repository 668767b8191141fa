"""A right kernel in MLX's interface: one parameter is a mask, a bias or the word "causal".

Its diagonal is that of the longer: with fewer queries than keys the last ones meet, with more the first ones do, so
that no row is without a key.

theorems verify --attention examples.real_faults.further.mlx:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows, attend, of_module


class ByLonger(Rows):
    """Row i stands at key i + T − L, or at key i with L > T."""

    def ahead(self, rows: int, keys: int) -> Tensor:
        return torch.arange(keys) - torch.arange(rows)[:, None] - max(keys - rows, 0)


def with_mlx(rows: type[ByLonger]) -> Callable[..., Tensor]:
    """``mx.fast.scaled_dot_product_attention``, (B, H, L, E)."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Any = None) -> Tensor:
        causal = isinstance(mask, str)
        bias = None if causal else mask
        if bias is not None and bias.dtype == torch.bool:
            bias = torch.zeros(bias.shape, dtype=q.dtype).masked_fill(~bias, -math.inf)
        return attend(rows(scale, causal), q, k, v, bias=bias)[0]

    return of_module(rows, attention)


attention = with_mlx(ByLonger)
