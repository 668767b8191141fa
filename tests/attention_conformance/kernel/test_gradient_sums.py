"""Kernels that add dK and dV in half precision, a number of queries at a time, are recognised, and only these sums may
be rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.kernel.gradient_sums import zero_sums
from attention_conformance.kernel.kernel_loader import kernel_of
from attention_conformance.kernel.report import headline
from theorems.bounded.formats import FORMATS, HALF

halves = pytest.mark.parametrize("dtype", HALF)


class SumInParts(torch.autograd.Function):
    """Weights times values; the backward pass rounds dV to the values' dtype after every ``queries`` rows."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, queries: int) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.queries = queries
        return weights @ values.to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, values = ctx.saved_tensors
        total = torch.zeros_like(values)
        for s, u in zip(weights.split(ctx.queries, 2), upstream[0].split(ctx.queries, 2), strict=True):
            total = (total.to(s.dtype) + s.mT @ u).to(values.dtype)
        return upstream[0] @ values.to(weights.dtype).mT, total, None


def summing_in_parts(queries: int) -> Callable[..., Tensor]:
    def attention(q: Tensor, k: Tensor, v: Tensor, scale: float = 1.0) -> Tensor:
        weights = torch.softmax(q.float() @ k.float().mT * scale, dim=-1)
        return SumInParts.apply(weights, v, queries).to(q.dtype)  # type: ignore[no-any-return,no-untyped-call]

    return attention


@halves
@pytest.mark.parametrize("queries", [1, 4, 16, 32, 64, 128, 256])
def test_the_number_of_queries_in_a_partial_sum_is_determined(queries: int, dtype: str) -> None:
    kernel = kernel_of(summing_in_parts(queries), dtype)
    assert kernel.queries_to_a_sum == max(queries, 4)
    assert f"summed over queries in {dtype}, at most {max(queries, 4)} at a time" in headline(kernel)


@halves
def test_a_kernel_that_rounds_only_complete_sums_has_no_partial_sums(dtype: str) -> None:
    assert kernel_of(summing_in_parts(1 << 20), dtype).queries_to_a_sum == 0

    def by_formula(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal)

    assert kernel_of(by_formula, dtype).queries_to_a_sum == 0


@halves
def test_the_flash_path_of_pytorch_accumulates_in_half_precision(dtype: str) -> None:
    def flash(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: Any = None) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=scale)

    assert kernel_of(flash, dtype).queries_to_a_sum > 0


@halves
def test_the_calls_that_find_partial_sums_have_gradients_of_exactly_zero(dtype: str) -> None:
    for L in (8, 64, 512):
        call = zero_sums(L, 2, 16, FORMATS[dtype], seed=1)
        rows = AttentionRows(call, FORMATS["float64"])
        assert not np.any(rows.value_gradient.value)
        assert not np.any(rows.key_gradient.value)
        u = call.upstream[0, 0, :, 0]
        assert (np.abs(u) < 2 / FORMATS[dtype].eps).all()
        assert (u % 2 == 1).all()
