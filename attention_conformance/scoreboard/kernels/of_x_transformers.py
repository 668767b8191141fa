"""The class Attend of x-transformers, as a function with Attend's own formula and one with PyTorch's attention."""

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
    # Grouped heads are not tested: with G groups of keys, head h of H has the keys of group h % G in x-transformers,
    # and those of group h // (H/G) in other libraries.
    from x_transformers.attend import Attend

    if attn_mask is not None:  # Attend would read the first axis of a mask of two axes as the batch axis
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
    """Call Attend, which computes attention by a formula of its own."""
    return _attend(query, key, value, attn_mask, is_causal, scale, softcap)


def attend_flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Call Attend with ``flash=True``, so that it uses PyTorch's attention."""
    return _attend(query, key, value, attn_mask, is_causal, scale, flash=True)
