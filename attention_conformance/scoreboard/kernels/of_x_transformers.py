"""The class Attend of x-transformers, as two functions."""

from __future__ import annotations

import torch
from torch import Tensor


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    softcap: float = 0.0,
    flash: bool = False,
) -> Tensor:
    # Grouped heads are left out: here head h has the keys of group h % G, in other libraries of group h // (H/G).
    from x_transformers.attend import Attend

    if attn_mask is not None:  # Attend takes the first axis of a mask of two axes for the batch
        attn_mask = attn_mask.reshape((1,) * (4 - attn_mask.ndim) + attn_mask.shape)
    boolean = attn_mask is not None and attn_mask.dtype == torch.bool
    attend = Attend(
        causal=is_causal, scale=scale, softclamp_logits=softcap > 0, logit_softclamp_value=softcap, flash=flash
    )
    output, _ = attend(query, key, value, mask=attn_mask if boolean else None, attn_bias=None if boolean else attn_mask)
    return output


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
) -> Tensor:
    """Call Attend with its own formula."""
    return _attend(query, key, value, attn_mask, is_causal, scale, softcap)


def attend_flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Call Attend with ``flash=True``, which uses PyTorch's attention."""
    return _attend(query, key, value, attn_mask, is_causal, scale, flash=True)
