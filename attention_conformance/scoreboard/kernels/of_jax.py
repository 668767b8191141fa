"""Attention of JAX, Flax and Equinox as functions of torch tensors."""

from __future__ import annotations

from typing import Any

import jax

from attention_conformance.kernel.jax_adapter import on_tensors

of_nn = on_tensors(jax.nn.dot_product_attention)


def _scale_query(query: Any, scale: float | None) -> Any:
    """Return the query times scale · √E, for a kernel that divides logits by √E, so that the whole factor is scale."""
    return query if scale is None else query * (scale * query.shape[-1] ** 0.5)


@on_tensors
def linen(query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, scale: float | None = None) -> Any:
    """Call flax.linen's attention, which divides logits by √E, on queries scaled so that the factor is ``scale``."""
    from flax.linen import dot_product_attention

    return dot_product_attention(_scale_query(query, scale), key, value, bias, mask)


@on_tensors
def nnx(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Any:
    """Call flax.nnx's attention, which divides logits by √E, on queries scaled so that the factor is ``scale``."""
    from flax.nnx import dot_product_attention

    return dot_product_attention(_scale_query(query, scale), key, value, bias, mask, is_causal=is_causal)


@on_tensors
def equinox(query: Any, key: Any, value: Any, mask: Any = None, scale: float | None = None) -> Any:
    """Call Equinox's function, which takes a single head and scales by 1/√E, on each head of each batch entry."""
    from equinox.nn._attention import dot_product_attention

    query = _scale_query(query, scale)
    if mask is None:
        return jax.vmap(jax.vmap(dot_product_attention, (1, 1, 1), 1))(query, key, value)
    B, L, H, _ = query.shape
    mask = jax.numpy.broadcast_to(mask, (B, H, L, key.shape[1]))
    return jax.vmap(jax.vmap(dot_product_attention, (1, 1, 1, 0), 1))(query, key, value, mask)
