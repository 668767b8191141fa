"""Attention of NumPy, JAX and x-transformers, as functions that ``theorems verify --attention`` takes.

    theorems verify --attention numpy:examples.other_libraries:in_numpy
    theorems verify --attention jax:examples.other_libraries:in_jax

The following functions need no wrapper, as ``--attention`` recognises their signatures:
``torch.nn.functional:scaled_dot_product_attention``, ``jax:jax.nn:dot_product_attention``,
``transformers.integrations.sdpa_attention:sdpa_attention_forward``,
``transformers.models.llama.modeling_llama:eager_attention_forward``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def in_numpy(query: Any, keys: Any, values: Any) -> Any:
    """Compute softmax attention on NumPy arrays, without a backward pass, so that gradients are not checked."""
    logits = query @ np.swapaxes(keys, -1, -2)
    unnormalised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return unnormalised / unnormalised.sum(axis=-1, keepdims=True) @ values


def in_jax(query: Any, keys: Any, values: Any) -> Any:
    """Compute softmax attention on JAX arrays; JAX computes the gradients."""
    import jax

    return jax.nn.softmax(query @ keys.swapaxes(-1, -2), axis=-1) @ values


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
) -> Tensor:
    """Call the class Attend of x-transformers, which computes attention by a formula of its own."""
    # Grouped heads are not tested: with G groups of keys, head h of H has the keys of group h % G in x-transformers,
    # and those of group h // (H/G) in other libraries.
    from x_transformers.attend import Attend

    if attn_mask is not None:  # Attend would read the first axis of a mask of two axes as the batch axis
        attn_mask = attn_mask.reshape((1,) * (4 - attn_mask.ndim) + attn_mask.shape)
    boolean = attn_mask is not None and attn_mask.dtype == torch.bool
    attend = Attend(causal=is_causal, scale=scale, softclamp_logits=softcap > 0, logit_softclamp_value=softcap)
    output, _ = attend(query, key, value, mask=attn_mask if boolean else None, attn_bias=None if boolean else attn_mask)
    return output
