"""Attention kernels with the signature that ``theorems verify --attention`` expects.

The signature is (query (…, 1, d), keys (…, T, d), values (…, T, m)) → (…, 1, m). Copy the kernel that is nearest to
yours and replace its body by a call of your own kernel. Each kernel computes softmax(q kᵀ) v: logits are plain inner
products, so the query is first multiplied by √d where a kernel divides logits by √d.

    theorems verify --attention examples.kernels:handwritten
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor


def handwritten(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute softmax attention in three lines."""
    logits = query @ keys.transpose(-2, -1)
    unnormalised = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    return unnormalised / unnormalised.sum(dim=-1, keepdim=True) @ values


def pytorch_sdpa(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Call PyTorch's own kernel with scale 1 in place of its default 1/√d.

    If a kernel has a parameter ``scale``, ``--attention`` passes scale 1 by itself, without such a function.
    """
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values, scale=1.0)


def pytorch_multihead(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Call ``nn.MultiheadAttention`` with one head and identity projections.

    The module takes tensors of three axes, with the same width d of queries, keys and values. The width used here is a
    power of four, so that √d is a power of two, by which the query is multiplied without rounding to undo the module's
    scale 1/√d. Narrower tensors are padded with zeros.
    """
    m = values.shape[-1]
    width = 4 ** math.ceil(math.log(max(query.shape[-1], m), 4))
    padded = (query * math.sqrt(width), keys, values)
    q, k, v = (torch.nn.functional.pad(x, (0, width - x.shape[-1])).flatten(0, -3) for x in padded)
    attended, _ = _multihead(width, query.dtype)(q, k, v, need_weights=False)
    return attended[..., :m].reshape(*query.shape[:-1], m)


@cache
def _multihead(width: int, dtype: torch.dtype) -> torch.nn.MultiheadAttention:
    attention = torch.nn.MultiheadAttention(width, 1, bias=False, batch_first=True, dtype=dtype)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        attention.out_proj.weight.copy_(torch.eye(width))
    return attention


def online(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute softmax attention token by token with a running maximum of the logits, as flash attention does."""
    top = query.new_full(query.shape[:-1], -math.inf)
    total = torch.zeros_like(top)
    mean = values.new_zeros((*query.shape[:-1], values.shape[-1]))
    for t in range(keys.shape[-2]):
        logit = (query * keys[..., t : t + 1, :]).sum(dim=-1)
        new_top = torch.maximum(top, logit)
        decay, weight = torch.exp(top - new_top), torch.exp(logit - new_top)
        total = total * decay + weight
        mean = mean * decay[..., None] + weight[..., None] * values[..., t : t + 1, :]
        top = new_top
    return mean / total[..., None]
