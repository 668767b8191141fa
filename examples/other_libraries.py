"""Attention in NumPy and JAX, as functions with the signature that ``theorems verify --attention`` expects.

    theorems verify --attention numpy:examples.other_libraries:in_numpy
    theorems verify --attention jax:examples.other_libraries:in_jax

Wrappers for flex_attention, x-transformers and others are in ``attention_conformance/scoreboard/kernels``. The
following functions need no wrapper, as ``--attention`` recognises their signatures:
``torch.nn.functional:scaled_dot_product_attention``, ``jax:jax.nn:dot_product_attention``,
``transformers.integrations.sdpa_attention:sdpa_attention_forward``,
``transformers.models.llama.modeling_llama:eager_attention_forward``.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def in_numpy(query: Any, keys: Any, values: Any) -> Any:
    """Compute softmax attention on NumPy arrays, without a backward pass, so that gradients are not checked."""
    logits = query @ np.swapaxes(keys, -1, -2)
    unnormalised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return unnormalised / unnormalised.sum(axis=-1, keepdims=True) @ values


def in_jax(query: Any, keys: Any, values: Any) -> Any:
    """Compute softmax attention on JAX arrays; JAX computes the gradients."""
    import jax

    return jax.nn.softmax(query @ keys.swapaxes(-1, -2), axis=-1) @ values
