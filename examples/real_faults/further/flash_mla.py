"""A right kernel that takes what FlashMLA takes, and nothing else: a cache of 576 columns, of which 512 are values, one
head of it, and pages of 64 keys.

theorems verify --attention examples.real_faults.further.flash_mla:attention
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from examples.real_faults.further.mla import Latent, with_latent
from examples.real_faults.further.rows import of_module

PAGE = (64, 1, 576)
VALUES = 512


def with_flash_mla(steps: type[Latent]) -> Callable[..., Any]:
    """``flash_mla_with_kvcache``: (B, L, H, 576) and pages (N, 64, 1, 576) → (B, L, H, 512) and log-sum-exp (B, H, L).

    Raises:
        ValueError: other sizes.
    """
    kernel = with_latent(steps)

    def attention(
        q: Tensor,
        k_cache: Tensor,
        block_table: Tensor,
        cache_seqlens: Tensor,
        head_dim_v: int,
        tile_scheduler_metadata: Any,
        num_splits: Any,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        if tuple(k_cache.shape[1:]) != PAGE or q.shape[-1] != PAGE[-1] or head_dim_v != VALUES:
            raise ValueError(f"pages of {PAGE} and {VALUES} columns of values")
        found: tuple[Tensor, Tensor] = kernel(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal)
        return found

    return of_module(steps, attention)


attention = with_flash_mla(Latent)
