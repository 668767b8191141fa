"""Attention of other libraries, where its own signature is none that ``--attention`` recognises.

    theorems verify --attention examples.other_libraries:flex
    theorems verify --attention numpy:examples.other_libraries:in_numpy
    theorems verify --attention jax:examples.other_libraries:in_jax

What needs no wrapper: ``torch.nn.functional:scaled_dot_product_attention``, ``jax:jax.nn:dot_product_attention``,
``transformers.integrations.sdpa_attention:sdpa_attention_forward``,
``transformers.models.llama.modeling_llama:eager_attention_forward``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def in_numpy(query: Any, keys: Any, values: Any) -> Any:
    """Softmax attention on NumPy arrays; there is no backward pass."""
    logits = query @ np.swapaxes(keys, -1, -2)
    unnormalised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return unnormalised / unnormalised.sum(axis=-1, keepdims=True) @ values


def in_jax(query: Any, keys: Any, values: Any) -> Any:
    """Softmax attention on JAX arrays; its backward pass is JAX's."""
    import jax

    return jax.nn.softmax(query @ keys.swapaxes(-1, -2), axis=-1) @ values


def flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    return_lse: bool = False,
) -> Any:
    """PyTorch's flex_attention under flash attention's signature, its masks and scores made of these options.

    Without torch.compile, on a CPU, it has no backward pass.
    """
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    left, right = window_size

    def sees(batch: Tensor, head: Tensor, i: Tensor, t: Tensor) -> Tensor:
        seen = (t <= i) if causal else torch.ones_like(t <= i)
        seen = seen & (t >= i - left) if left >= 0 else seen
        return seen & (t <= i + right) if right >= 0 else seen

    def capped(score: Tensor, *where: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    hiding = causal or left >= 0 or right >= 0
    mask = create_block_mask(sees, None, None, q.shape[1], k.shape[1], device=q.device.type) if hiding else None
    found = flex_attention(
        *(x.transpose(1, 2) for x in (q, k, v)),
        score_mod=capped if softcap else None,
        block_mask=mask,
        scale=softmax_scale,
        enable_gqa=q.shape[2] != k.shape[2],
        return_aux=AuxRequest(lse=True) if return_lse else None,
    )
    return (found[0].transpose(1, 2), found[1].lse) if return_lse else found.transpose(1, 2)


def x_transformers(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
) -> Tensor:
    """x-transformers' Attend. Of grouped heads it gives head h the keys h % G, others h // (H/G): left out here."""
    from x_transformers.attend import Attend

    boolean = attn_mask is not None and attn_mask.dtype == torch.bool
    attend = Attend(causal=is_causal, scale=scale, softclamp_logits=softcap > 0, logit_softclamp_value=softcap)
    output, _ = attend(query, key, value, mask=attn_mask if boolean else None, attn_bias=None if boolean else attn_mask)
    return output
