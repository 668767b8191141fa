"""Kernels on arrays of NumPy or JAX, and kernels on torch tensors with the signature of another library."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from examples.other_libraries import in_jax, in_numpy


def numpy_sdpa(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: float = 1.0
) -> Any:
    """Return attention on NumPy arrays, with the parameters of PyTorch's function."""
    logits = query @ np.swapaxes(key, -1, -2) * scale
    if is_causal:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    if attn_mask is not None:
        logits = np.where(attn_mask, logits, -np.inf) if attn_mask.dtype == bool else logits + attn_mask
    top = logits.max(axis=-1, keepdims=True)
    unnormalised = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    total = unnormalised.sum(axis=-1, keepdims=True)
    return unnormalised / np.where(total > 0, total, 1.0) @ value


def numpy_forgetful(query: Any, keys: Any, values: Any) -> Any:
    """Ignore the tokens after the eighth."""
    return in_numpy(query, keys[..., :8, :], values[..., :8, :])


def numpy_scribbling(query: Any, keys: Any, values: Any) -> Any:
    """Overwrite the caller's keys with zeros."""
    output = in_numpy(query, keys, values)
    keys[...] = 0.0
    return output


def detached(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return right attention that is detached from autograd."""
    return (torch.softmax(query @ keys.mT, dim=-1) @ values).detach()


def jax_wrong_vjp(query: Any, keys: Any, values: Any) -> Any:
    """Return a right output whose own backward pass takes the denominator of the softmax for a constant in dQ."""
    import jax

    @jax.custom_vjp
    def attend(q: Any, k: Any, v: Any) -> Any:
        return in_jax(q, k, v)

    def forward(q: Any, k: Any, v: Any) -> Any:
        return in_jax(q, k, v), (q, k, v)

    def backward(tensors: Any, upstream: Any) -> Any:
        q, k, v = tensors
        s = jax.nn.softmax(q @ k.swapaxes(-1, -2), axis=-1)
        dz = s * (upstream @ v.swapaxes(-1, -2))
        return dz @ k, *jax.vjp(in_jax, q, k, v)[1](upstream)[1:]

    attend.defvjp(forward, backward)
    return attend(query, keys, values)


def jax_signature(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    local_window_size: tuple[int, int] | None = None,
    return_residual: bool = False,
) -> Any:
    """Return torch attention with jax.nn's signature; as in jax.nn, each side of a window is a number of keys, and
    hidden logits are large negative numbers.
    """
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    logits = q @ k.mT * (scale if scale is not None else q.shape[-1] ** -0.5)
    ahead = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
    visible = ahead <= 0 if is_causal else torch.ones_like(ahead, dtype=torch.bool)
    if local_window_size is not None:
        left, right = local_window_size
        visible = visible & (-left <= ahead) & (ahead <= right)
    logits = logits.masked_fill(~visible, -0.7 * torch.finfo(q.dtype).max)
    output = (torch.softmax(logits, dim=-1) @ v).transpose(1, 2)
    return (output, torch.logsumexp(logits, dim=-1).transpose(1, 2)) if return_residual else output


def hf_signature(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    dropout: float = 0.0,
) -> Any:
    """Return attention as transformers' SDPA function does: if there are several queries and no mask,
    ``module.is_causal`` decides on causality.
    """
    key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (key, value))
    causal = (module.is_causal if is_causal is None else is_causal) and query.shape[2] > 1 and attention_mask is None
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=causal, scale=scaling, dropout_p=dropout
    )
    return output.transpose(1, 2), None
