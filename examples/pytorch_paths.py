"""PyTorch's attention held to one of its paths: it chooses by device, sizes and options.

theorems verify --attention examples.pytorch_paths:math
theorems verify --attention examples.pytorch_paths:flash
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The formula, operation by operation."""
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )


def flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Flash attention, which refuses what it does not support."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale)
