"""Kernels that are right, but work or behave differently from most others.

Sizes: B batch entries, H query heads, G key heads, L queries, T keys, E columns of queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.attention_conformance.claims.combined_faults import near, right_flash, right_sdpa, textbook

Kernel = Callable[..., Any]
UNUSUAL: dict[str, Kernel] = {}


def unusual(kernel: Kernel) -> Kernel:
    """Add a kernel to :data:`UNUSUAL`, by name."""
    UNUSUAL[kernel.__name__] = kernel
    return kernel


@unusual
def formula(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return attention that takes a mask together with causality; ``combined_faults`` has this kernel with faults."""
    chosen = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return right_sdpa(query, key, value, attn_mask, is_causal, chosen, dropout_p)


@unusual
def bottom_right(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None),
    softcap: float = 0.0,
    return_lse: bool = False,
) -> Any:
    """Return attention whose last row is aligned with the last key. As in the newest flash-attention, None, and not −1,
    stands for a side of the window without limit.
    """
    left, right = (-1 if side is None else side if side >= 0 else 10**9 for side in window_size)
    if any(side is not None and side < 0 for side in window_size):
        raise ValueError("window_size: None is no limit")
    chosen = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
    given = (x.transpose(1, 2) for x in (q, k, v))
    out, lse = right_flash(*given, causal, (left, right), softcap, chosen)
    return (out.transpose(1, 2), lse) if return_lse else out.transpose(1, 2)


@unusual
def in_chunks(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    """Return attention computed for seven queries at a time."""
    chosen = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    L, T = query.shape[2], key.shape[2]
    visible = near(L, T, causal=is_causal)
    parts = [
        textbook(query[:, :, at : at + 7], key, value, visible=visible[at : at + 7], scale=chosen)[0]
        for at in range(0, L, 7)
    ]
    return torch.cat(parts, dim=2)


@unusual
def merged_by_log_sum_exp(query: Tensor, keys: Tensor, values: Tensor, scale: float = 1.0) -> Tensor:
    """Return attention computed on two halves of the keys and merged by their log-sum-exps."""
    half = keys.shape[-2] // 2
    if not half:
        return textbook(query, keys, values, scale=scale)[0]
    wide = torch.promote_types(query.dtype, torch.float32)
    parts = []
    for at in (slice(0, half), slice(half, None)):
        logits = query.to(wide) @ keys[..., at, :].to(wide).mT * scale
        lse = torch.logsumexp(logits, dim=-1, keepdim=True)
        parts.append((torch.exp(logits - lse) @ values[..., at, :].to(wide), lse))
    (first, a), (then, b) = parts
    both = torch.logaddexp(a, b)
    return (first * torch.exp(a - both) + then * torch.exp(b - both)).to(query.dtype)


@unusual
def padded_to_blocks(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Return attention with keys padded to multiples of 32, head dimensions to multiples of 16, and the
    padding hidden.
    """
    B, H, L, E = query.shape
    T, M = key.shape[2], value.shape[3]
    chosen = 1 / math.sqrt(E) if scale is None else scale
    pad = torch.nn.functional.pad
    q = pad(query, (0, -E % 16))
    k, v = (pad(x, (0, -x.shape[3] % 16, 0, -T % 32)) for x in (key, value))
    everything = torch.ones(1, 1, 1, T, dtype=torch.bool)
    mask = everything if attn_mask is None else attn_mask.expand(B, H, L, T)
    hidden = False if mask.dtype == torch.bool else -math.inf
    return right_sdpa(q, k, v, pad(mask, (0, -T % 32), value=hidden), False, chosen, 0.0)[..., :M]


@unusual
def in_place_on_a_copy(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention computed in float32 or wider, whose output is multiplied by 1 in place."""
    wide = torch.promote_types(query.dtype, torch.float32)
    logits = torch.matmul(query.to(wide), keys.to(wide).mT)
    logits = logits - logits.detach().amax(dim=-1, keepdim=True)
    weights = logits.exp()
    weights = weights / weights.sum(dim=-1, keepdim=True)
    output = weights @ values.to(wide)
    return output.mul_(1.0).to(query.dtype)


@unusual
def returns_a_view(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False) -> Tensor:
    """Return attention as a transposed view into a larger tensor; the first row is aligned with the first key."""
    chosen = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
    query, key, value = (x.transpose(1, 2) for x in (q, k, v))
    visible = near(query.shape[2], key.shape[2], causal=causal)
    out = textbook(query, key, value, visible=visible, scale=chosen)[0]
    return torch.cat([out, out * 0], dim=-1)[..., : v.shape[-1]].transpose(1, 2)


@unusual
def online_over_keys(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, return_lse: bool = False
) -> Any:
    """Return attention by an online softmax over blocks of 16 keys, differentiated by autograd."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
    query, key, value = (x.transpose(1, 2).to(wide) for x in (q, k, v))
    key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    top = torch.full(query.shape[:-1], -math.inf, dtype=wide)
    total, mean = torch.zeros_like(top), query.new_zeros((*query.shape[:-1], value.shape[-1]))
    for at in range(0, key.shape[2], 16):
        logits = query @ key[:, :, at : at + 16].mT * scale
        new = torch.maximum(top, logits.detach().amax(dim=-1))
        kept, weights = torch.exp(top - new), torch.exp(logits - new[..., None])
        total = total * kept + weights.sum(dim=-1)
        mean = mean * kept[..., None] + weights @ value[:, :, at : at + 16]
        top = new
    out = (mean / total[..., None]).to(q.dtype).transpose(1, 2)
    return (out, (top + total.log()).detach()) if return_lse else out


@unusual
def mean_where_nothing_is_seen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return attention in which a row without visible keys has equal weights, to which dropout applies, too."""
    chosen = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    z = query.to(wide) @ key.to(wide).mT * chosen
    if is_causal:
        z = z.masked_fill(~near(query.shape[2], key.shape[2], causal=True), -math.inf)
    if attn_mask is not None:
        z = z.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else z + attn_mask.to(wide)
    weights = torch.softmax(z.masked_fill((z == -math.inf).all(dim=-1, keepdim=True), 0.0), dim=-1)
    return (torch.dropout(weights, dropout_p, train=True) @ value.to(wide)).to(query.dtype)


@unusual
def reads_what_is_seen(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Return attention that reads no tensor if no key is visible, and only the value if the only key is visible, so
    that other inputs have no gradient.
    """
    everything = torch.ones(1, dtype=torch.bool)
    mask = everything if attn_mask is None else attn_mask
    visible = mask if mask.dtype == torch.bool else mask > -math.inf
    if not visible.any():
        return torch.zeros(*query.shape[:3], value.shape[3], dtype=query.dtype)
    if key.shape[2] == 1 and visible.all():
        return value.repeat_interleave(query.shape[1] // key.shape[1], dim=1).expand(-1, -1, query.shape[2], -1)
    chosen = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return right_sdpa(query, key, value, attn_mask, False, chosen, 0.0)


@unusual
def zero_stands_for_its_own_scale(query: Tensor, key: Tensor, value: Tensor, scale: float = 0.0) -> Tensor:
    """Return attention whose default scale is 0, which stands for 1/√E (SKaiNET #860)."""
    return textbook(query, key, value, scale=scale or 1 / math.sqrt(query.shape[-1]))[0]
